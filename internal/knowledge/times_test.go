package knowledge

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// The last change of a key is remembered, as long as not too many others are, and nothing before it
// is begun.
func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var times Times
		says := func(key string, want time.Time, who [16]byte) {
			t.Helper()
			if at, load := times.Of(key); !at.Equal(want) || load != who {
				t.Errorf("%s was changed at %v by %v, want %v by %v", key, at, load, want, who)
			}
		}
		times.Changed("key", load)
		says("key", time.Time{}, [16]byte{})
		times.Begin(64)
		says("key", time.Time{}, [16]byte{})
		first := time.Now()
		times.Changed("key", load)
		says("key", first, load)
		says("other", time.Time{}, [16]byte{})
		time.Sleep(time.Second)
		times.Changed("key", [16]byte{})
		says("key", time.Now(), [16]byte{})
		for i := range 10_000 {
			times.Changed(fmt.Sprint(i), load)
		}
		says("key", time.Time{}, [16]byte{})
		if n := len(times.slots); n != 64 {
			t.Errorf("%d are remembered", n)
		}
	})
}
