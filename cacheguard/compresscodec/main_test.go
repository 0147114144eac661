package compresscodec_test

import (
	"runtime"
	"testing"

	"go.uber.org/goleak"
)

// TestMain: a codec has nothing to close, so nothing may run when the tests are over.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// allocated is how many bytes f allocates, on a machine that does nothing else meanwhile.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
