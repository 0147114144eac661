package redisstore_test

import (
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/internal/redistest"
)

// figures logs the cost of a fault: the callers' answers, the loads of the origin, and the time
// from the end of the fault until all was as before.
func figures(t *testing.T, fault string, loads int64, normal time.Duration, callers ...answer) {
	t.Helper()
	f := redistest.Figures{Fault: fault, Loads: int(loads), Normal: normal}
	for _, a := range callers {
		f.Count(a.took, a.err)
	}
	t.Log(f)
}
