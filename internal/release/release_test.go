package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// toy is a repository of three modules that is ready to be released as v0.1.0.
type toy struct {
	*testing.T
	dir string
}

func newToy(t *testing.T) *toy {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skipf("%s is skipped: it needs git, and %v", t.Name(), err)
	}
	r := &toy{T: t, dir: t.TempDir()}
	r.write("go.mod", "module example.com/toy\n\ngo 1.26.0\n")
	r.write("toy.go", "package toy\n\nfunc Name() string { return \"toy\" }\n\nfunc Size() int { return 3 }\n")
	r.write("wheel/go.mod", "module example.com/toy/wheel\n\ngo 1.26.0\n\nrequire example.com/toy v0.0.1\n")
	r.write("wheel/wheel.go", "package wheel\n\nimport \"example.com/toy\"\n\nvar Of = toy.Name()\n")
	r.write("internal/alltest/go.mod", "module example.com/toy/internal/alltest\n\ngo 1.26.0\n\n"+
		"require (\n\texample.com/toy v0.0.1\n\texample.com/toy/wheel v0.0.1\n)\n")
	r.write("internal/alltest/all_test.go", "package alltest\n\nimport _ \"example.com/toy/wheel\"\n")
	r.write("go.work", "go 1.26.0\n\nuse (\n\t.\n\t./wheel\n\t./internal/alltest\n)\n")
	r.write("CHANGELOG.md", "# Changelog\n\n## v0.1.0 (2026-01-31)\n\n- The toy.\n")
	r.git("init", "-q")
	r.commit()
	r.release("prepare", "v0.1.0")
	r.commit()
	return r
}

func (r *toy) write(name, text string) {
	r.Helper()
	file := filepath.Join(r.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		r.Fatal(err)
	}
}

// replace puts another text into a file in the place of one that is there.
func (r *toy) replace(name, old, with string) {
	r.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil || !strings.Contains(string(text), old) {
		r.Fatalf("%s is %q, %v", name, text, err)
	}
	r.write(name, strings.Replace(string(text), old, with, 1))
}

func (r *toy) git(args ...string) {
	r.Helper()
	args = append([]string{"-c", "user.name=toy", "-c", "user.email=toy@example.com"}, args...)
	if _, err := command(r.dir, nil, "git", args...); err != nil {
		r.Fatal(err)
	}
}

func (r *toy) commit() {
	r.Helper()
	r.git("add", "--all")
	r.git("commit", "-q", "-m", "toy: more")
}

// release runs the command, which has to succeed.
func (r *toy) release(args ...string) string {
	r.Helper()
	var out strings.Builder
	if err := run(append([]string{"-C", r.dir}, args...), &out); err != nil {
		r.Fatal(err)
	}
	return out.String()
}

// A release that lacks nothing is tagged module by module.
func TestCheckTellsTags(t *testing.T) {
	t.Parallel()
	r := newToy(t)
	said := r.release("check", "v0.1.0")
	for _, want := range []string{"git tag -a -m v0.1.0 v0.1.0\n", "git tag -a -m wheel/v0.1.0 wheel/v0.1.0\n", "no release before",
		"git push origin HEAD v0.1.0\ngit push origin wheel/v0.1.0\n"} {
		if !strings.Contains(said, want) {
			t.Errorf("check says %q, without %q", said, want)
		}
	}
	if strings.Contains(said, "alltest") {
		t.Errorf("check tags what is in no release: %q", said)
	}
}

// Each mistake is named.
func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(r *toy)
		want  string
	}{
		"a file that is not committed": {func(r *toy) { r.write("new.txt", "new") }, "new.txt"},
		"a tag that is there":          {func(r *toy) { r.git("tag", "wheel/v0.1.0") }, "there is a tag wheel/v0.1.0 already"},
		"a newer release":              {func(r *toy) { r.git("tag", "v0.2.0") }, "v0.2.0 was released already"},
		"a version that nobody is told of": {func(r *toy) {
			r.replace("CHANGELOG.md", "## v0.1.0 (2026-01-31)", "## Unreleased")
			r.commit()
		}, `CHANGELOG.md does not begin with "## v0.1.0"`},
		"a date that is none": {func(r *toy) {
			r.replace("CHANGELOG.md", "2026-01-31", "2026-02-31")
			r.commit()
		}, `CHANGELOG.md does not begin with "## v0.1.0"`},
		"a version without changes": {func(r *toy) {
			r.replace("CHANGELOG.md", "- The toy.\n", "\n## v0.0.9 (2026-01-30)\n\n- The toy.\n")
			r.commit()
		}, "CHANGELOG.md lists no changes of v0.1.0"},
		"changes under no version": {func(r *toy) {
			r.replace("CHANGELOG.md", "- The toy.\n", "- The toy.\n\n## Unreleased\n\n- The wheel.\n")
			r.commit()
		}, "CHANGELOG.md still has a section for what is unreleased"},
		"changes before any version": {func(r *toy) {
			r.replace("CHANGELOG.md", "# Changelog\n", "# Changelog\n\n### [Unreleased] (next)\n\n- The wheel.\n")
			r.commit()
		}, "CHANGELOG.md still has a section for what is unreleased"},
		"a date that is to come": {func(r *toy) {
			r.replace("CHANGELOG.md", "2026-01-31", "2226-01-31")
			r.commit()
		}, `CHANGELOG.md does not begin with "## v0.1.0"`},
		"no branch": {func(r *toy) { r.git("checkout", "-q", "--detach") }, "no branch is checked out"},
		"a file that git ignores": {func(r *toy) {
			r.write("wheel/size.go", "package wheel\n\nconst size = 3\n")
			r.write(".gitignore", "size.go\n")
			r.replace("wheel/wheel.go", "toy.Name()", "toy.Name()[:size]")
			r.commit()
			r.release("prepare", "v0.1.0")
			r.commit()
		}, "undefined: size"},
		"a replace directive": {func(r *toy) {
			r.replace("wheel/go.mod", "require", "replace example.com/other => ../other\n\nrequire")
			r.commit()
		}, "wheel/go.mod replaces example.com/other"},
		"another version of the root": {func(r *toy) {
			r.replace("internal/alltest/go.mod", "wheel v0.1.0", "wheel v0.0.9")
			r.commit()
		}, "internal/alltest/go.mod is not as prepare writes it"},
		"a change after the hashes were written": {func(r *toy) {
			r.replace("toy.go", "return 3", "return 4")
			r.commit()
		}, "wheel/go.sum is not as prepare writes it"},
		"a package that doesn't build": {func(r *toy) {
			r.replace("wheel/wheel.go", "toy.Name()", "toy.Nome()")
			r.commit()
		}, "undefined: toy.Nome"},
		"a test that fails": {func(r *toy) {
			r.replace("internal/alltest/all_test.go", "import _ \"example.com/toy/wheel\"",
				"import (\n\t\"testing\"\n\n\t_ \"example.com/toy/wheel\"\n)\n\nfunc TestAll(t *testing.T) { t.Error(\"broken\") }")
			r.commit()
		}, "all_test.go:9: broken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newToy(t)
			c.spoil(r)
			refuses(r, "v0.1.0", c.want)
		})
	}
}

// refuses tests that a version isn't ready, for exactly this reason.
func refuses(r *toy, version, want string) {
	r.Helper()
	err := run([]string{"-C", r.dir, "check", version}, &strings.Builder{})
	if err == nil {
		r.Fatal("it is said to be ready")
	}
	if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "is not ready") {
		r.Errorf("it isn't ready, but not for %q: %v", want, err)
	}
}

// A patch may add names and change what isn't exported.
func TestCheckTakesAPatch(t *testing.T) {
	t.Parallel()
	r := newToy(t)
	r.write("internal/axle/axle.go", "package axle\n\nfunc Turn() {}\n") // apidiff says that it leaves such a package out
	r.write("internal/alltest/names.go", "package alltest\n\nfunc Names() {}\n")
	r.release("prepare", "v0.1.0")
	r.commit()
	r.git("tag", "v0.1.0")
	r.git("tag", "wheel/v0.1.0")
	r.replace("toy.go", "func Size() int { return 3 }", "func Size() int { return 4 }\n\nfunc Weight() int { return 3 }")
	r.write("internal/axle/axle.go", "package axle\n")
	r.write("CHANGELOG.md", "# Changelog\n\n## v0.1.1 (2026-02-28)\n\n* Weight.\n")
	r.write("internal/alltest/names.go", "package alltest\n") // of a module that is in no release
	r.release("prepare", "v0.1.1")
	r.commit()
	if said := r.release("check", "v0.1.1"); !strings.Contains(said, "git tag -a -m v0.1.1 v0.1.1\n") {
		t.Errorf("check says %q", said)
	}
}

// A patch may not take a name away; the next minor version may, below 1.0.
func TestCheckComparesNames(t *testing.T) {
	t.Parallel()
	r := newToy(t)
	r.git("tag", "v0.1.0")
	r.git("tag", "wheel/v0.1.0")
	r.replace("toy.go", "func Size() int { return 3 }", "func Weight() int { return 3 }")
	for _, version := range []string{"v0.1.1", "v0.2.0"} {
		r.write("CHANGELOG.md", fmt.Sprintf("# Changelog\n\n## %s (2026-02-28)\n\n- Weight.\n", version))
		r.release("prepare", version)
		r.commit()
		if version == "v0.1.1" {
			refuses(r, version, "Size: removed")
		} else {
			r.release("check", version)
		}
	}
}

// Modules that aren't tidy don't pass, whatever versions and hashes of each other they have.
func TestTryWantsTidyModules(t *testing.T) {
	t.Parallel()
	r := newToy(t)
	if said := r.release("try"); !strings.Contains(said, "   2  example.com/toy\n") {
		t.Errorf("try says %q", said)
	}
	r.write("wheel/wheel_test.go", "package wheel\n\nvar size int = Of\n")
	err := run([]string{"-C", r.dir, "try"}, &strings.Builder{})
	if err == nil || !strings.Contains(err.Error(), "toy/wheel: ") || !strings.Contains(err.Error(), "cannot use Of") {
		t.Errorf("a test that doesn't compile: %v", err)
	}
	r.write("wheel/wheel_test.go", "package wheel\n")
	r.replace("wheel/go.mod", "toy v0.1.0", "toy v0.1.0 // indirect")
	err = run([]string{"-C", r.dir, "try"}, &strings.Builder{})
	if err == nil || !strings.Contains(err.Error(), "wheel/go.mod is not tidy") {
		t.Errorf("a comment that is wrong: %v", err)
	}
}

// Whatever doesn't compile for a system is named with the system, and each error once.
func TestTypes(t *testing.T) {
	t.Parallel()
	r := newToy(t)
	r.write("toy_unix.go", "//go:build unix\n\npackage toy\n\nfunc Stop() {}\n")
	r.release("types", "windows")
	wrong := map[string]string{ // in a file of that name, and in what is said of it
		"wheel/wheel_test.go":   "package wheel\n\nimport \"example.com/toy\"\n\nfunc init() { toy.Stop() }\n",
		"wheel/rim/rim.go":      "package rim\n\nvar Size string = 3\n\nfunc init() { size() }\n",
		"wheel/rim/rim_test.go": "package rim\n",
		"wheel/hub/hub_test.go": "package hub_test\n\nimport _ \"example.com/toy/wheel/spoke\"\n",
		"wheel/nut/nut_test.go": "package nut\n\nfunc TestNut() {}\n",
		"wheel/axle/axle.go":    "package axle\n\nfunc {\n",
		"wheel/tyre/tyre.go":    "package tyre\n\nimport _ \"embed\"\n\n//go:embed tyre.txt\nvar tyre string\n",
		"wheel/brake/brake.go":  "package brake\n\nfunc init() {\n\tvar unused int\n}\n",
	}
	for name, text := range wrong {
		r.write(name, text)
	}
	err := run([]string{"-C", r.dir, "types", "windows", "linux"}, &strings.Builder{})
	if err == nil {
		t.Fatal("nothing is wrong")
	}
	_, windows, _ := strings.Cut(err.Error(), "for windows:\n")
	windows, linux, _ := strings.Cut(windows, "for linux:\n")
	for want, onLinux := range map[string]bool{
		"wheel_test.go:5:19: undefined: toy.Stop": false, // Linux has it
		"rim.go:3:19: cannot use 3":               true,
		"rim.go:5:15: undefined: size":            true,
		"example.com/toy/wheel/spoke":             true,
		"wrong signature for TestNut":             true,
		"axle.go:3:6":                             true,
		"pattern tyre.txt: no matching files":     true,
		"declared and not used: unused":           true,
	} {
		if strings.Contains(linux, want) != onLinux || !strings.Contains(windows, want) {
			t.Errorf("want %q for Windows, and for Linux %v:\n%v", want, onLinux, err)
		}
		if strings.Contains(want, ".go:") && strings.Contains(want, ": undefined") && strings.Count(windows, want) != 1 {
			t.Errorf("%q is said more than once:\n%s", want, windows)
		}
	}
}

// What can't be a release says so before anything is written.
func TestArguments(t *testing.T) {
	for _, args := range [][]string{{}, {"try", "v0.1.0"}, {"prepare"}, {"types"}, {"tag", "v0.1.0"}, {"prepare", "0.1.0"}, {"check", "v0.1"}} {
		if err := run(append([]string{"-C", "../.."}, args...), &strings.Builder{}); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}

// Modules that require each other in a circle, and released ones that require others, are refused.
func TestOrder(t *testing.T) {
	t.Parallel()
	r := newToy(t)
	r.replace("go.mod", "go 1.26.0\n", "go 1.26.0\n\nrequire example.com/toy/wheel v0.1.0\n")
	if _, err := open(r.dir); err == nil || !strings.Contains(err.Error(), "itself") {
		t.Errorf("a circle: %v", err)
	}
	r.replace("go.mod", "toy/wheel", "toy/internal/alltest")
	if _, err := open(r.dir); err == nil {
		t.Error("a module of a release requires one that is in none")
	}
}

// Each released module has a bill of materials with its version and that of the modules it needs.
func TestBills(t *testing.T) {
	r := newToy(t)
	dir := t.TempDir()
	r.release("sbom", "v0.1.0", dir)
	for name, has := range map[string][]string{
		"example.com_toy":       {`"version": "v0.1.0"`, `"pkg:golang/example.com/toy@v0.1.0?`},
		"example.com_toy_wheel": {`"pkg:golang/example.com/toy@v0.1.0?`, `"pkg:golang/example.com/toy/wheel@v0.1.0?`},
	} {
		bill, err := os.ReadFile(filepath.Join(dir, name+".cdx.json"))
		if err != nil {
			t.Error(err)
		}
		for _, words := range has {
			if !strings.Contains(string(bill), words) {
				t.Errorf("%s doesn't say %s:\n%s", name, words, bill)
			}
		}
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 2 {
		t.Errorf("files: %v, %v", all, err)
	}
}

// A second version is written where the first one stood, so that a release changes nothing else in
// go.work.
func TestPrepareKeepsTheWorkspace(t *testing.T) {
	r := newToy(t)
	first, err := os.ReadFile(filepath.Join(r.dir, "go.work"))
	if err != nil {
		t.Fatal(err)
	}
	r.release("prepare", "v0.2.0")
	second, err := os.ReadFile(filepath.Join(r.dir, "go.work"))
	if want := strings.ReplaceAll(string(first), "v0.1.0", "v0.2.0"); err != nil || string(second) != want {
		t.Errorf("%v; go.work is\n%s\nwant\n%s", err, second, want)
	}
}
