package report

import (
	"strings"
	"testing"
)

func TestKeys(t *testing.T) {
	if got := QuoteKey("a\n"); got != `"a\n"` {
		t.Errorf("QuoteKey gives %s", got)
	}
	long := strings.Repeat("k", 65)
	if got := QuoteKey(long); got != `"`+long[:64]+`"... (65 bytes)` {
		t.Errorf("QuoteKey gives %s", got)
	}
	// printf %s abc | sha256sum
	if got := HashKey("abc"); got != "ba7816bf8f01cfea" {
		t.Errorf("HashKey gives %s", got)
	}
}
