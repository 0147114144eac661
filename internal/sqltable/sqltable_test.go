package sqltable

import (
	"strings"
	"testing"
)

func TestWrong(t *testing.T) {
	for table, want := range map[string]string{
		"locks": "", "app.Locks_2": "", "_": "", strings.Repeat("t", Most): "",
		"": "is \"\"", "2locks": "is", "a.b.c": "is", "drop table": "is", `a"b`: "is", "a;": "is",
		"é":                         "is",
		strings.Repeat("t", Most+1): "has 64 bytes, more than 63",
	} {
		if err := Wrong(table); (err == nil) != (want == "") ||
			err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v; want %q", table, err, want)
		}
	}
}
