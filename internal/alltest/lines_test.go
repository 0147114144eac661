package alltest

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// longest is the number of columns of a line of Go or Markdown. A tab counts as four.
const longest = 100

// Lines wrap at 100 columns. Text that can't be broken may go on: string literals, tables, links,
// and what comments and pages show as code.
func TestLinesWrap(t *testing.T) {
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && d.Name() == ".git" {
				return filepath.SkipDir
			}
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var long []int
		switch filepath.Ext(path) {
		case ".go":
			long = longCode(text, strings.HasSuffix(path, "_test.go"))
		case ".md":
			long = longProse(string(text))
		}
		for _, line := range long {
			t.Errorf("%s:%d: the line has more than %d columns", path, line, longest)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLongLinesAreFound(t *testing.T) {
	word := strings.Repeat("a", 60)
	for code, long := range map[string]bool{
		"x(" + word + ", " + word[:35] + ")":            false,
		"x(" + word + ", " + word + ")":                 true,
		"x(" + word + ", \"" + word + "\")":             false,
		"x(\"" + word + word + "\", y)":                 true,
		"// " + word + " " + word:                       true,
		"//     " + word + " " + word:                   true,
		"// https://" + word + word:                     false,
		"//\t" + word + " " + word:                      false,
		"x() // " + word + " " + word:                   true,
		"x = `" + word + " " + word + "\n" + word + "`": false,
	} {
		if got := len(longCode([]byte(code), false)) > 0; got != long {
			t.Errorf("%s: too long: %v, want %v", code, got, long)
		}
	}
	for prose, long := range map[string]bool{
		word + " " + word:                      true,
		"| " + word + " | " + word + " |":      false,
		"```\n" + word + " " + word + "\n```":  false,
		"[" + word + "](https://" + word + ")": false,
	} {
		if got := len(longProse(prose)) > 0; got != long {
			t.Errorf("%s: too long: %v, want %v", prose, got, long)
		}
	}
}

func columns(line string) int { return utf8.RuneCountInString(line) + 3*strings.Count(line, "\t") }

// longCode returns the lines of Go code that are too long. A line may be too long because of the
// string literal at its end. In the file of a test, an indented comment may be the output of an
// Example, which can't be broken; elsewhere it belongs to a list.
func longCode(src []byte, test bool) (long []int) {
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, scanner.ScanComments)
	breakable := map[int]bool{} // by line: it could be broken before its end
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			break
		}
		line := file.Line(pos)
		switch {
		case tok == token.STRING:
			breakable[line] = false
			breakable[line+strings.Count(text, "\n")] = false
		case tok == token.COMMENT:
			words, shown := strings.CutPrefix(text, "// ")
			alone := !shown || test && strings.HasPrefix(words, "  ") || !strings.Contains(words, " ")
			breakable[line] = breakable[line] || !alone
		case tok.IsLiteral() || tok.IsKeyword():
			breakable[line] = true
		}
	}
	for i, line := range strings.Split(string(src), "\n") {
		if columns(line) > longest && breakable[i+1] {
			long = append(long, i+1)
		}
	}
	return long
}

// longProse returns the lines of Markdown that are too long. Tables, code and lines that begin with
// a long link may be.
func longProse(text string) (long []int) {
	code := false
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		}
		links := strings.Contains(line, "](") && !strings.Contains(line[:strings.Index(line, "](")], ". ")
		if !code && columns(line) > longest && !strings.HasPrefix(line, "|") && !links {
			long = append(long, i+1)
		}
	}
	return long
}
