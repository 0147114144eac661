package cacheguard_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
)

// pages are the documents for users.
func pages(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("../docs/*.md")
	if err != nil || len(all) < 4 {
		t.Fatalf("docs has %q, %v", all, err)
	}
	return append(all, "../README.md")
}

var goBlocks = regexp.MustCompile("(?s)```go\n(.*?)```")

// The pages' Go code is the examples' own, so that what a newcomer copies is what the tests run. A
// whole program is run by TestReadmeProgramRuns.
func TestPagesShowTheExamples(t *testing.T) {
	var examples string
	for _, pattern := range []string{
		"example*_test.go", "redisstore/example_test.go", "guardtest/example_test.go",
		"../middleware/example*_test.go",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			examples += flat(read(t, file))
		}
	}
	shown := 0
	for _, page := range pages(t) {
		for _, block := range goBlocks.FindAllStringSubmatch(read(t, page), -1) {
			if strings.HasPrefix(block[1], "package main\n") {
				continue
			}
			if shown++; !strings.Contains(examples, flat(block[1])) {
				t.Errorf("%s has this, which is in no example:\n%s", page, block[1])
			}
		}
	}
	if shown < 8 {
		t.Errorf("the pages show %d pieces of code only", shown)
	}
}

// The first program compiles and runs as pasted. Only Redis is elsewhere, and the program waits
// longer for it, because a busy machine may need longer for the first answer of a new process.
func TestReadmeProgramRuns(t *testing.T) {
	t.Parallel()
	const addr, options = "localhost:6379", "redisstore.Options{}"
	program := goBlocks.FindStringSubmatch(read(t, "../README.md"))[1]
	if !strings.HasPrefix(program, "package main\n") || strings.Count(program, addr) != 1 ||
		strings.Count(program, options) != 1 {
		t.Fatalf("the first program is\n%s", program)
	}
	m := miniredis.RunT(t)
	file := filepath.Join(t.TempDir(), "main.go")
	// A longer OpTimeout than LeaseTTL, which is 3 s, would be logged.
	program = strings.NewReplacer(addr, m.Addr(),
		options, "redisstore.Options{OpTimeout: 3_000_000_000}").Replace(program)
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	for try := 1; ; try++ {
		run := exec.CommandContext(t.Context(), "go", "run", file)
		run.Dir = ".."
		said, err := run.CombinedOutput()
		if err == nil && string(said) == "lamp <nil>\n" && m.Exists("cg:product:{42}") {
			return
		}
		// Even this time may pass on a busy machine.
		if try == 10 || !strings.Contains(string(said), "store can't be used") {
			t.Fatalf("it says %q, %v; Redis has %q", said, err, m.Keys())
		}
		m.FlushAll()
	}
}

// The README is read in some minutes.
func TestReadmeIsShort(t *testing.T) {
	words := regexp.MustCompile(`\S*[\pL\d]\S*`).FindAllString(read(t, "../README.md"), -1)
	if len(words) > 900 {
		t.Errorf("the README has %d words, at most 900 are its size", len(words))
	}
}

// Every file that the pages link to is there.
func TestPagesLinkToWhatIsThere(t *testing.T) {
	for _, page := range pages(t) {
		for _, link := range regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`).
			FindAllStringSubmatch(read(t, page), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), link[1])); err != nil {
				t.Errorf("%s links to %s: %v", page, link[1], err)
			}
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

// The same of CONTRIBUTING.md.
func TestContributingNamesWhatIsThere(t *testing.T) { namesTests(t, "../CONTRIBUTING.md", 50) }

// Every file and test that ARCHITECTURE.md names is there, and it stays short enough to be read.
func TestArchitectureNamesWhatIsThere(t *testing.T) {
	text := read(t, "../ARCHITECTURE.md")
	if n := strings.Count(text, "\n"); n > 200 {
		t.Errorf("ARCHITECTURE.md has %d lines, at most 200 are its size", n)
	}
	namesTests(t, "../ARCHITECTURE.md", 25)
	namesParts(t, text, 25)
	rows := strings.Join(regexp.MustCompile(`(?m)^\|.*$`).FindAllString(text, -1), "")
	// The folder at the end of a part of a cell is that of all its tests.
	for _, cell := range regexp.MustCompile(`[|;]`).Split(rows, -1) {
		folder := "internal/coretest"
		if named := regexp.MustCompile("` in `([\\w/.]+)`\\s*$").
			FindStringSubmatch(cell); named != nil {
			folder = named[1]
		}
		for _, name := range regexp.MustCompile("`(Test[A-Z]\\w+)`").FindAllStringSubmatch(cell,
			-1) {
			where := folder
			if strings.HasPrefix(name[1], "TestProcesses") {
				where = "internal/systemtest"
			}
			if !isIn(t, name[1], where) {
				t.Errorf("ARCHITECTURE.md says that %s is in %s", name[1], where)
			}
		}
	}
	for _, named := range regexp.MustCompile(
		"`((?:internal|cacheguard|middleware|bench|examples)/[\\w/.]+?)(?:/\\.\\.\\.)?`").
		FindAllStringSubmatch(text, -1) {
		if _, err := os.Stat("../" + named[1]); err != nil {
			t.Errorf("ARCHITECTURE.md names %s: %v", named[1], err)
		}
	}
	for _, promise := range []string{
		"P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P11", "P12", "P13", "P14",
		"P15",
	} {
		if !strings.Contains(text, "| "+promise+" | ") {
			t.Errorf("ARCHITECTURE.md doesn't say what %s is", promise)
		}
	}
}

// isIn reports whether a test is in a folder or in a file. Folders in cacheguard are named without
// it.
func isIn(t *testing.T, name, where string) bool {
	t.Helper()
	for _, path := range goFiles(t) {
		dir := filepath.ToSlash(filepath.Dir(path))
		here := dir == "../"+where || dir == "../cacheguard/"+where ||
			filepath.ToSlash(path) == "../"+where
		if here && strings.HasSuffix(path, "_test.go") &&
			strings.Contains(read(t, path), "func "+name+"(") {
			return true
		}
	}
	return false
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
	named := regexp.MustCompile("`(?:\\w+\\.)?(\\w+)`(?: of `\\w+`)? in `(?:\\w+/)*(\\w+\\.go)`").
		FindAllStringSubmatch(text, -1)
	if len(named) < least {
		t.Errorf("%d names of parts of files only", len(named))
	}
	for _, name := range named {
		if !regexp.MustCompile(`(?m)^(func (\([^)]*\) )?|type |\t|var |const )` + name[1] +
			`\b`).MatchString(files[name[2]]) {
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

// namesTests sees that the tests and fuzz targets which a file names are there, at least that many,
// and in the folder or the file that is named behind them. A name with "..." is the beginning of
// names.
func namesTests(t *testing.T, file string, least int) {
	t.Helper()
	tests := map[string]string{}
	for _, name := range goFiles(t) {
		if strings.HasSuffix(name, "_test.go") {
			tests[filepath.ToSlash(name)] = read(t, name)
		}
	}
	named := regexp.MustCompile("\\b((?:Test|Fuzz)[A-Z]\\w+)\\b(\\.\\.\\.)?(?:` in `([\\w/.]+)`)?").
		FindAllStringSubmatch(read(t, file), -1)
	if len(named) < least {
		t.Errorf("%s names %d tests only", file, len(named))
	}
	for _, name := range named {
		there, begins := false, "func "+name[1]
		if name[2] == "" {
			begins += "("
		}
		for path, text := range tests {
			there = there ||
				strings.Contains(text, begins) && strings.Contains(path+"/", "/"+name[3])
		}
		if !there {
			t.Errorf("%s names %s, which isn't in %q", file, name[1], name[3])
		}
	}
}
