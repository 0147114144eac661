package compresscodec_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain: a codec has nothing to close, so nothing may run when the tests are over.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
