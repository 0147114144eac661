package redisstore

import (
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard"
)

// A cache isn't told that messages arrive on a channel that was left and is not joined again yet,
// even if the report of the first time comes late.
func TestLateReportOfAChannel(t *testing.T) {
	s := storeThatHangs(t)
	stop := s.Listen("x", func(m cacheguard.Message) {
		if m.Kind == cacheguard.MessageRestored {
			t.Error("told that messages arrive")
		}
	})
	defer stop()
	if _, err := s.subscribe(); err != nil {
		t.Fatal(err)
	}
	(&ear{s: s}).joined(t.Context(), s.channelOf("x"))
}
