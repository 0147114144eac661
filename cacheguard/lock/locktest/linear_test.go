package locktest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// verdict is the TB of one check.
type verdict struct{ failed string }

var errFatal = errors.New("the case has failed")

func (*verdict) Helper()             {}
func (*verdict) Logf(string, ...any) {}
func (v *verdict) Errorf(format string, args ...any) {
	v.failed += fmt.Sprintf(format, args...)
}

func (v *verdict) Fatalf(format string, args ...any) {
	v.Errorf(format, args...)
	panic(errFatal)
}

func (v *verdict) Skipf(format string, args ...any) { v.Fatalf("skipped: "+format, args...) }

// TestVerdictsOnHistories: what no lock can do fails the case. A refusal that nobody explains fails
// it, too, unless slow calls may have acquired the lock late, for nobody.
func TestVerdictsOnHistories(t *testing.T) {
	now := time.Now()
	at := func(client int, call, ret int64) interval {
		return interval{client: client, call: call, ret: ret, began: now, ended: now}
	}
	hold := func(h *history, client int, call, ret, endCall, endRet, token int64) {
		h.attempts = append(h.attempts, at(client, call, ret))
		h.add(at(client, call, ret), lockOp{kind: opAcquire, hold: ret, token: token})
		h.add(at(client, endCall, endRet), lockOp{kind: opEnd, hold: ret})
	}
	refuse := func(h *history, client int, call, ret int64) {
		h.attempts = append(h.attempts, at(client, call, ret))
		h.refused = append(h.refused, at(client, call, ret))
	}
	for _, c := range []struct {
		name                string
		make                func(h *history)
		whenQuick, whenSlow string // what the verdict says; empty: the history is fine
	}{
		{"one after another", func(h *history) {
			hold(h, 1, 1, 2, 5, 6, 1)
			refuse(h, 2, 3, 4)
			hold(h, 2, 7, 8, 9, 10, 2)
		}, "", ""},
		{"refused by nobody", func(h *history) {
			hold(h, 1, 1, 2, 3, 4, 1)
			refuse(h, 2, 5, 6)
		}, "not linearizable", "bad luck"},
		{"two holders", func(h *history) {
			hold(h, 1, 1, 2, 5, 6, 1)
			hold(h, 2, 3, 4, 7, 8, 2)
		}, "not linearizable", "not linearizable"},
		{"two holders, and refused by nobody", func(h *history) {
			hold(h, 1, 1, 2, 5, 6, 1)
			hold(h, 2, 3, 4, 7, 8, 2)
			refuse(h, 3, 9, 10)
		}, "not linearizable", "not linearizable"},
		{"a smaller token", func(h *history) {
			hold(h, 1, 1, 2, 3, 4, 2)
			hold(h, 2, 5, 6, 7, 8, 1)
		}, "not linearizable", "not linearizable"},
	} {
		for _, slow := range []bool{false, true} {
			want := c.whenQuick
			if slow {
				want = c.whenSlow
			}
			var h history
			c.make(&h)
			if got := judge(&h, slow); want == "" && got != "" || !strings.Contains(got, want) {
				t.Errorf("%s, slow %v: %q; want %q", c.name, slow, got, want)
			}
		}
	}
}

// judge returns what a check of the history says, or "".
func judge(h *history, slow bool) (said string) {
	v := &verdict{}
	defer func() {
		if r := recover(); r != nil {
			said = fmt.Sprintf("%s (%v)", v.failed, r)
		}
	}()
	e := &env{TB: v, fleet: Fleet{Fenced: true, Lease: time.Second}, limit: patience}
	if luck := unlucky(func() { h.check(e, slow) }); luck != nil {
		return "bad luck: " + luck.reason
	}
	return v.failed
}
