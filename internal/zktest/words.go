package zktest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cacheguard/cacheguard/internal/childproc"
)

// askTimeout is the time limit for a server that accepts connections and doesn't answer.
const askTimeout = 5 * time.Second

// Ask returns the server's answer to one of ZooKeeper's four-letter commands, such as "srvr".
func (s *Server) Ask(word string) (string, error) { return ask(s.Addr(), word) }

// Figure returns one number from the answer to "mntr", such as "zk_watch_count".
func (s *Server) Figure(name string) (int64, error) {
	text, err := s.Ask("mntr")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), "\t"); key == name {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("zktest: no figure %q among those of the server", name)
}

func ask(addr, word string) (string, error) {
	answer, err := childproc.Ask(addr, askTimeout, []byte(word), most)
	return string(answer), err
}
