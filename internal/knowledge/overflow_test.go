package knowledge

import (
	"fmt"
	"testing"
	"time"
)

// If so many changes wait that they become one of the whole cache, none of them counts as older
// than it is: those that are repeated after an interruption are added from the newest to the
// oldest.
func TestOverflowKeepsGenerations(t *testing.T) {
	var u Unsent
	var l Lately
	for n := range maxTold {
		l.Keys([]string{fmt.Sprint("told ", n)}, 50, time.Time{}, false)
	}
	for n := range maxUnsent - maxTold/2 {
		u.AddKeys([]string{fmt.Sprint("unsent ", n)}, 100, time.Time{})
	}
	if gone, _ := u.Has(u.Now(), "unsent 1", nil, 75); !gone {
		t.Fatal("before: the value from before its change counts")
	}
	l.Again(time.Time{}, &u)
	if gone, _ := u.Has(u.Now(), "unsent 1", nil, 75); !gone {
		t.Error("a value with stamp 75 counts, although its key was changed at 100 and the store wasn't told")
	}
}
