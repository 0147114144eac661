package redistest

import (
	"errors"
	"testing"
	"time"
)

func TestFigures(t *testing.T) {
	f := Figures{Fault: "server stopped", Loads: 3}
	f.Count(2*time.Millisecond, nil)
	f.Count(time.Millisecond, errors.New("no"))
	want := "figures: server stopped | callers 2 | errors 1 | loads 3 | longest wait 2ms | normal after -"
	if got := f.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
