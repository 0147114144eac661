package waittest_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cacheguard/cacheguard/internal/waittest"
)

// verdict is a TB that keeps the failure.
type verdict struct{ failed string }

func (*verdict) Helper()                             {}
func (v *verdict) Fatalf(format string, args ...any) { v.failed = fmt.Sprintf(format, args...) }

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, looks := range []int{1, 2, 1000} {
			var v verdict
			n := 0
			waittest.Until(&v, "it", func() bool { n++; return n == looks })
			if v.failed != "" || n != looks {
				t.Errorf("looked %d times, failed %q; want %d", n, v.failed, looks)
			}
		}
		began, never := time.Now(), verdict{}
		waittest.Until(&never, "what never comes", func() bool { return false })
		if took := time.Since(began); took != waittest.Patience ||
			!strings.Contains(never.failed, "what never comes") {
			t.Errorf("failed %q after %v", never.failed, took)
		}
	})
}

func TestNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := make(chan int, 1)
		var v verdict
		c <- 7
		if got := waittest.Next(&v, "it", c); got != 7 || v.failed != "" {
			t.Errorf("got %d, failed %q", got, v.failed)
		}
		waittest.Next(&v, "what never comes", c)
		if !strings.Contains(v.failed, "what never comes") {
			t.Errorf("failed %q", v.failed)
		}
		v.failed = ""
		close(c)
		if got := waittest.Next(&v, "it", c); got != 0 || v.failed != "" {
			t.Errorf("got %d of a closed channel, failed %q", got, v.failed)
		}
	})
}
