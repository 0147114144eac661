package drivetest

import (
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/internal/protocol"
)

// TestDrive shows what the comparison finds.
func TestDrive(t *testing.T) {
	granted, returned := protocol.Event{Kind: protocol.Granted}, protocol.Event{
		Kind: protocol.Returned,
	}
	begins := protocol.Load | protocol.Renew
	turn, load, nothing := protocol.InHand{Turn: true}, protocol.InHand{Load: true},
		protocol.InHand{}
	asking, leading := protocol.Miss{State: protocol.Asking}, protocol.Miss{
		State: protocol.Leading, Until: 1,
	}
	for name, c := range map[string]struct {
		do   func(d *drive)
		want string
	}{
		"nothing": {func(d *drive) {
			d.step("m", turn, asking, granted, 0)
			d.step("m", nothing, leading, returned, 0)
		}, ""},
		"an answer that comes twice": {func(d *drive) {
			d.step("m", turn, asking, granted, 0)
			d.step("m", load, leading, granted, 0)
		}, "told what the explorer never tells: Leading leased load: Granted"},
		"the end of a load that was cancelled": {func(d *drive) {
			d.step("m", nothing, protocol.Miss{State: protocol.Queued}, returned, 0)
		}, "told what the explorer never tells: Queued: Returned"},
		"a slot that is not given back": {func(d *drive) {
			d.step("m", turn, protocol.Miss{State: protocol.Following},
				protocol.Event{Kind: protocol.Woken}, 0)
		}, "told what the explorer never tells: Following turn: Woken"},
		"a command that is not carried out": {func(d *drive) {
			d.step("m", turn, asking, granted, begins)
			d.done("m", protocol.Load)
			d.step("m", nothing, leading, returned, 0)
		}, "Leading leased: Returned comes before 1000000000000000 is done"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDrive()
			c.do(d)
			if got := strings.Join(d.wrong(), ", "); got != c.want {
				t.Errorf("finds %q, want %q", got, c.want)
			}
		})
	}
}
