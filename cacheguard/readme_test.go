package cacheguard_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The README's Go code is the examples' own, so that what a newcomer copies is what the tests run.
func TestReadmeShowsTheExamples(t *testing.T) {
	readme := read(t, "../README.md")
	if n := strings.Count(readme, "\n"); n > 220 {
		t.Errorf("the README has %d lines, at most 220 are its size", n)
	}
	var examples string
	for _, pattern := range []string{"example*_test.go", "../middleware/example*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			examples += flat(read(t, file))
		}
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(readme, -1)
	if len(blocks) == 0 {
		t.Error("the README has no Go code")
	}
	for _, block := range blocks {
		if !strings.Contains(examples, flat(block[1])) {
			t.Errorf("this is in no example:\n%s", block[1])
		}
	}
}

// Every file and test that the README names is there.
func TestReadmeNamesWhatIsThere(t *testing.T) {
	readme := read(t, "../README.md")
	links := regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(readme, -1)
	for _, link := range links {
		if strings.Contains(link[1], "://") {
			continue
		}
		if _, err := os.Stat("../" + link[1]); err != nil {
			t.Errorf("the README links to %s: %v", link[1], err)
		}
	}
	var tests strings.Builder
	for _, dir := range []string{".", "redisstore", "storetest", "../internal/frame", "../internal/flight", "../middleware"} {
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if strings.HasSuffix(f.Name(), ".go") {
				tests.WriteString(read(t, dir+"/"+f.Name()))
			}
		}
	}
	for _, name := range regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllStringSubmatch(readme, -1) {
		if !strings.Contains(tests.String(), "func "+name[1]+"(") {
			t.Errorf("the README names %s, and there is no such test", name[1])
		}
	}
}

// flat is text without its indentation.
func flat(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Every test that SECURITY.md names is there.
func TestSecurityNamesWhatIsThere(t *testing.T) { namesTests(t, "../SECURITY.md", 30) }

// Every file and test that ARCHITECTURE.md names is there, and it stays short enough to be read.
func TestArchitectureNamesWhatIsThere(t *testing.T) {
	text := read(t, "../ARCHITECTURE.md")
	if n := strings.Count(text, "\n"); n > 200 {
		t.Errorf("ARCHITECTURE.md has %d lines, at most 200 are its size", n)
	}
	namesTests(t, "../ARCHITECTURE.md", 25)
	namesParts(t, text, 25)
	for _, named := range regexp.MustCompile("`((?:internal|cacheguard|middleware|bench|examples)/[\\w/.]+?)(?:/\\.\\.\\.)?`").FindAllStringSubmatch(text, -1) {
		if _, err := os.Stat("../" + named[1]); err != nil {
			t.Errorf("ARCHITECTURE.md names %s: %v", named[1], err)
		}
	}
	for _, promise := range []string{"P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P11", "P12", "P13", "P14", "P15"} {
		if !strings.Contains(text, "| "+promise+" | ") {
			t.Errorf("ARCHITECTURE.md doesn't say what %s is", promise)
		}
	}
}

// The same of the tests that the protocol's rules name.
func TestProtocolNamesWhatIsThere(t *testing.T) { namesTests(t, "../internal/protocol/doc.go", 20) }

// namesParts sees that what a text says is in a file is there, at least that many.
func namesParts(t *testing.T, text string, least int) {
	t.Helper()
	files := map[string]string{}
	for _, name := range goFiles(t) {
		files[filepath.Base(name)] += read(t, name)
	}
	named := regexp.MustCompile("`(?:\\w+\\.)?(\\w+)`(?: of `\\w+`)? in `(?:\\w+/)*(\\w+\\.go)`").FindAllStringSubmatch(text, -1)
	if len(named) < least {
		t.Errorf("%d names of parts of files only", len(named))
	}
	for _, name := range named {
		if !regexp.MustCompile(`(?m)^(func (\([^)]*\) )?|type |\t|var |const )` + name[1] + `\b`).MatchString(files[name[2]]) {
			t.Errorf("%s isn't in %s", name[1], name[2])
		}
	}
}

// goFiles are those of the project.
func goFiles(t *testing.T) (names []string) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// namesTests sees that the tests and fuzz targets which a file names are there, at least that many.
func namesTests(t *testing.T, file string, least int) {
	t.Helper()
	var tests strings.Builder
	for _, name := range goFiles(t) {
		if strings.HasSuffix(name, "_test.go") {
			tests.WriteString(read(t, name))
		}
	}
	named := regexp.MustCompile(`\b((?:Test|Fuzz)[A-Z]\w+)\b`).FindAllStringSubmatch(read(t, file), -1)
	if len(named) < least {
		t.Errorf("%s names %d tests only", file, len(named))
	}
	for _, name := range named {
		if !strings.Contains(tests.String(), "func "+name[1]+"(") {
			t.Errorf("%s names %s, which isn't there", file, name[1])
		}
	}
}
