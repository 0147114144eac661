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
	if n := strings.Count(readme, "\n"); n > 250 {
		t.Errorf("the README has %d lines, at most 250 are its size", n)
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
func TestSecurityNamesWhatIsThere(t *testing.T) {
	var tests strings.Builder
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			tests.WriteString(read(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(read(t, "../SECURITY.md"), -1)
	if len(named) < 30 {
		t.Errorf("only %d tests are named", len(named))
	}
	for _, name := range named {
		if !strings.Contains(tests.String(), "func "+name[1]+"(") {
			t.Errorf("SECURITY.md names %s, which isn't there", name[1])
		}
	}
}
