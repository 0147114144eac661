package childproc

import (
	"testing"

	"github.com/cacheguard/cacheguard/internal/childproc/kittest"
)

var _ TB = testing.TB(nil)

func TestOnlyTestsImportTesting(t *testing.T) { kittest.OnlyTestsImportTesting(t) }

func TestMissingSkipsOrFails(t *testing.T) {
	miss := func(v *kittest.Verdict) { Missing(v, "needs a server", "there is none") }
	kittest.SkipsOrFails(t, miss, "needs a server", "there is none")
}

func TestFullAndSoak(t *testing.T) {
	for env, want := range map[string][2]bool{
		"":          {false, false},
		"full":      {true, false},
		"soak":      {true, true},
		"full,soak": {true, true},
		"carefully": {false, false},
	} {
		t.Setenv("CACHEGUARD_TEST", env)
		if got := [2]bool{Full(), Soak()}; got != want {
			t.Errorf("%q: full, soak = %v, want %v", env, got, want)
		}
	}
}
