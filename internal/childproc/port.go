package childproc

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"time"
)

// Loopback is the address on which all servers listen.
const Loopback = "127.0.0.1"

// ListenAnywhere listens on a free port from 12000 to 21999. While a port is closed for a time, the
// kernel must not give it to an outgoing connection, least of all to a connection that tries to
// reach this port: so it lies below the ephemeral ranges of Linux (from 32768) and of other
// systems. So does the second port of a Redis that belongs to a cluster, which is 10000 higher and
// which no other server has.
func ListenAnywhere() (net.Listener, error) {
	var err error
	for range 100 {
		var l net.Listener
		l, err = net.Listen("tcp", net.JoinHostPort(Loopback, strconv.Itoa(12000+rand.IntN(10000))))
		if err == nil {
			return l, nil
		}
	}
	return nil, err
}

// FreePort returns a port of the same range on which no process listens at present.
func FreePort() (int, error) {
	l, err := ListenAnywhere()
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// UntilFree calls bind again as long as the port that bind needs is taken.
func UntilFree(bind func() error) (err error) {
	Until(StartTimeout, portRetry, func() bool {
		err = bind()
		return !errors.Is(err, syscall.EADDRINUSE)
	})
	return err
}

// Until calls done repeatedly until it returns true. done checks a state outside this process. If
// that takes longer than the limit, Until returns false.
func Until(limit, every time.Duration, done func() bool) bool {
	timeout := time.After(limit)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for !done() {
		select {
		case <-timeout:
			return false
		case <-tick.C:
		}
	}
	return true
}

// Ask sends a question to a server and returns the answer. It reads until the server closes the
// connection or has sent most bytes.
func Ask(addr string, within time.Duration, question []byte, most int64) ([]byte, error) {
	conn, err := net.DialTimeout("tcp", addr, within)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(question); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(conn, most))
}
