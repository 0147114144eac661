package cacheguard_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cacheguard/cacheguard/cacheguard"
)

func TestTokensAsText(t *testing.T) {
	for _, text := range []string{
		"-1", "+1", "0", " 1", "1 ", "1_0", "zzzzzzzzzzzzzzzz", strings.Repeat("1", 1000), "é",
		"\x00",
	} {
		if token, err := cacheguard.ParseToken(text); err == nil {
			t.Errorf("%q is the token %v", text, token)
		}
	}
	if token, err := cacheguard.ParseToken(""); err != nil || token != (cacheguard.Token{}) ||
		token.String() != "" {
		t.Errorf("the zero token: %v, %v", token, err)
	}
	for _, at := range []int64{1, time.Now().UnixMicro(), 1<<53 - 1} {
		token := cacheguard.TokenAt(time.UnixMicro(at))
		if same, err := cacheguard.ParseToken(token.String()); err != nil || same != token ||
			len(token.String()) > 11 {
			t.Errorf("%d: %q is %v, %v", at, token, same, err)
		}
	}
	if text := cacheguard.TokenAt(time.UnixMicro(math.MinInt64)).String(); text != "" {
		t.Errorf("a moment that never was is %q", text)
	}
}
