// Package kittest has the common tests of childproc and of the packages that start servers with it.
// They test what each server must do, and how each package treats tests and programs.
package kittest

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// OnlyTestsImportTesting tests that only the tests of the package in this folder import package
// testing, because a program that imports the package must not get the flags of go test.
func OnlyTestsImportTesting(t *testing.T) {
	t.Helper()
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := file.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imported := range parsed.Imports {
			if path := imported.Path.Value; strings.HasPrefix(path, `"testing`) {
				t.Errorf("%s imports %s", name, path)
			}
		}
	}
}

// Verdict is a TB that records skips and failures and goes on.
type Verdict struct{ Skipped, Failed string }

// The methods of a TB.
func (*Verdict) Helper()                             {}
func (*Verdict) Name() string                        { return "TestX" }
func (*Verdict) Cleanup(func())                      {}
func (v *Verdict) Skipf(format string, args ...any)  { v.Skipped = fmt.Sprintf(format, args...) }
func (v *Verdict) Fatalf(format string, args ...any) { v.Failed = fmt.Sprintf(format, args...) }
func (v *Verdict) Errorf(format string, args ...any) { v.Failed = fmt.Sprintf(format, args...) }

// SkipsOrFails calls miss, a test that lacks a program which it needs. It tests that the missing
// program skips the test, or fails it if CACHEGUARD_TEST asks for every test. The message must have
// these words.
func SkipsOrFails(t *testing.T, miss func(v *Verdict), words ...string) {
	for env, fails := range map[string]bool{
		"": false, "quick": false, "fullish": false,
		"full": true, "soak": true, "other,full": true, "full, soak": true,
	} {
		t.Run(env, func(t *testing.T) {
			t.Setenv("CACHEGUARD_TEST", env)
			var v Verdict
			miss(&v)
			if (v.Failed != "") != fails || (v.Skipped != "") == fails {
				t.Errorf("skipped %q, failed %q", v.Skipped, v.Failed)
			}
			said := v.Skipped + v.Failed
			for _, w := range append(words, "TestX") {
				if !strings.Contains(said, w) || strings.Contains(said, "\n") {
					t.Errorf("says %q", said)
				}
			}
		})
	}
}
