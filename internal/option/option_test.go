package option

import (
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	for _, c := range []struct {
		given, want time.Duration
		err         string
	}{
		{0, time.Second, ""},
		{10 * time.Millisecond, 10 * time.Millisecond, ""},
		{9 * time.Millisecond, 9 * time.Millisecond, "P: O is 9ms, it must be at least 10ms"},
		{-1, -1, "P: O is -1ns, it must be at least 10ms"},
	} {
		d := c.given
		err := Duration("P: O", &d, time.Second, 10*time.Millisecond)
		if d != c.want || text(err) != c.err {
			t.Errorf("%v became %v, %q; want %v, %q", c.given, d, text(err), c.want, c.err)
		}
	}
}

func TestAtMost(t *testing.T) {
	if err := AtMost("P: O", time.Hour, time.Hour); err != nil {
		t.Error(err)
	}
	if got := text(AtMost("P: O", 3, 2)); got != "P: O is 3ns, it must be at most 2ns" {
		t.Errorf("got %q", got)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
