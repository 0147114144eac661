package redislink

import (
	"context"
	"runtime"
	"strings"
	"testing"
)

// A step that panics, or ends its goroutine, has an error at once.
func TestAsideThatBreaks(t *testing.T) {
	for want, breaks := range map[string]func(){
		"has ended the goroutine": runtime.Goexit,
		"panicked: boom":          func() { panic("boom") },
	} {
		_, err := Aside(t.Context(), func(context.Context) (int, error) { breaks(); return 1, nil })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one with %q", err, want)
		}
	}
}
