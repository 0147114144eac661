package compresscodec_test

import (
	"testing"

	"go.uber.org/goleak"
)

// A codec has nothing to close. So no goroutine may run when the tests are over.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
