package redistest

import (
	"testing"

	"github.com/cacheguard/cacheguard/internal/childproc/kittest"
)

var (
	_ TB     = testing.TB(nil)
	_ Runner = (*testing.M)(nil)
)

func TestOnlyTestsImportTesting(t *testing.T) { kittest.OnlyTestsImportTesting(t) }

func TestMissingServerSkipsOrFails(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	kittest.SkipsOrFails(t, func(v *kittest.Verdict) {
		if s := Start(v); s != nil {
			t.Fatal("a server without a binary")
		}
	})
}
