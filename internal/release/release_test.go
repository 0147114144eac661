package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// toy is a repository of three modules that is ready to be released as v0.1.0.
type toy struct {
	*testing.T
	dir string
}

// first is a folder with the first toy and the remote "origin" of it. Others are copies of them.
var first struct {
	sync.Once
	dir string
}

func TestMain(m *testing.M) {
	defer func() { _ = os.RemoveAll(first.dir) }()
	m.Run()
}

func newToy(t *testing.T) *toy {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skipf("%s is skipped: it needs git, and %v", t.Name(), err)
	}
	first.Do(func() {
		var err error
		if first.dir, err = os.MkdirTemp("", "toy"); err != nil {
			t.Fatal(err)
		}
		newFirst(t)
	})
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(first.dir)); err != nil {
		t.Fatal(err)
	}
	return &toy{T: t, dir: filepath.Join(dir, "toy")}
}

func newFirst(t *testing.T) {
	t.Helper()
	r := &toy{T: t, dir: filepath.Join(first.dir, "toy")}
	r.write("LICENSE", "Toys are free.\n")
	r.write("go.mod", "module example.com/toy\n\ngo 1.26.0\n")
	r.write("toy.go",
		"package toy\n\nfunc Name() string { return \"toy\" }\n\nfunc Size() int { return 3 }\n")
	r.write("wheel/go.mod",
		"module example.com/toy/wheel\n\ngo 1.26.0\n\nrequire example.com/toy v0.0.1\n")
	r.write("wheel/wheel.go",
		"package wheel\n\nimport \"example.com/toy\"\n\nvar Of = toy.Name()\n")
	r.write("internal/alltest/go.mod", "module example.com/toy/internal/alltest\n\ngo 1.26.0\n\n"+
		"require (\n\texample.com/toy v0.0.1\n\texample.com/toy/wheel v0.0.1\n)\n")
	r.write("internal/alltest/all_test.go",
		"package alltest\n\nimport _ \"example.com/toy/wheel\"\n")
	r.write("go.work", "go 1.26.0\n\nuse (\n\t.\n\t./wheel\n\t./internal/alltest\n)\n")
	r.write("CHANGELOG.md", "# Changelog\n\n## v0.1.0 (2026-01-31)\n\n- The toy.\n")
	r.git("init", "-q", "--initial-branch=main")
	r.git("init", "-q", "--bare", "--initial-branch=main", "../origin.git")
	r.git("remote", "add", "origin", "../origin.git")
	r.prepare("v0.1.0")
	r.git("push", "-q", "origin", "main")
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
	r.git("commit", "-q", "--allow-empty", "-m", "toy: more")
}

// prepare commits everything, and prepares a version.
func (r *toy) prepare(version string) {
	r.Helper()
	r.commit()
	r.release("prepare", version)
	r.commit()
}

// elsewhere makes another clone of origin, runs git in it, and pushes its branch and its tags.
func (r *toy) elsewhere(args ...string) {
	r.Helper()
	r.git("clone", "-q", "../origin.git", "../other")
	r.git(append([]string{"-C", "../other"}, args...)...)
	r.git("-C", "../other", "push", "-q", "--tags", "origin", "main")
}

func (r *toy) hash(ref string) string {
	r.Helper()
	hash, err := command(r.dir, nil, "git", "rev-parse", ref)
	if err != nil {
		r.Fatal(err)
	}
	return strings.TrimSpace(hash)
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

// A release that lacks nothing is tagged module by module, wherever check is run. What is committed
// afterwards isn't in it.
func TestCheckTellsTags(t *testing.T) {
	t.Parallel()
	r := newToy(t)
	commit := r.hash("HEAD")
	said := r.release("-C", filepath.Join(r.dir, "internal"), "check", "v0.1.0")
	want := "# There is no release before this one, so no names were compared.\n" +
		"git tag -a -m v0.1.0 v0.1.0 " + commit + " &&\ngit tag -a -m wheel/v0.1.0 wheel/v0.1.0 " +
		commit + " &&\n" +
		"git push --atomic --no-follow-tags origin " + commit +
		":refs/heads/main refs/tags/v0.1.0 &&\ngit push --atomic --no-follow-tags origin refs/tags/wheel/v0.1.0\n"
	if said != want {
		t.Errorf("check says %q, not %q", said, want)
	}
	r.commit()
	shell := func() error {
		_, err := command(r.dir,
			[]string{"GIT_COMMITTER_NAME=toy", "GIT_COMMITTER_EMAIL=toy@example.com"}, "sh", "-c",
			said)
		return err
	}
	r.git("tag", "wheel/v0.1.0")
	if err := shell(); err == nil {
		t.Error("a tag that is there didn't end the commands")
	}
	if at, err := refs(r.dir, "origin"); err != nil || at["refs/tags/v0.1.0"] != "" {
		t.Errorf("after a command that failed, tags were pushed: %v, %v", at, err)
	}
	r.git("tag", "-d", "v0.1.0", "wheel/v0.1.0")
	if err := shell(); err != nil {
		t.Fatal(err)
	}
	at, err := refs(r.dir, "origin")
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{
		"refs/heads/main", "refs/tags/v0.1.0^{}", "refs/tags/wheel/v0.1.0^{}",
	} {
		if at[ref] != commit {
			t.Errorf("origin has %s for %s, not %s", at[ref], ref, commit)
		}
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
		"a tag that is there": {
			func(r *toy) { r.git("tag", "wheel/v0.1.0") }, "there is a tag wheel/v0.1.0 already",
		},
		"a newer release": {
			func(r *toy) { r.git("tag", "v0.2.0") }, "v0.2.0 was released already",
		},
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
			r.replace("CHANGELOG.md", "- The toy.\n",
				"- The toy.\n\n## Unreleased\n\n- The wheel.\n")
			r.commit()
		}, "CHANGELOG.md still has a section for what is unreleased"},
		"changes before any version": {func(r *toy) {
			r.replace("CHANGELOG.md", "# Changelog\n",
				"# Changelog\n\n### [Unreleased] (next)\n\n- The wheel.\n")
			r.commit()
		}, "CHANGELOG.md still has a section for what is unreleased"},
		"a date that is to come": {func(r *toy) {
			r.replace("CHANGELOG.md", "2026-01-31", "2226-01-31")
			r.commit()
		}, `CHANGELOG.md does not begin with "## v0.1.0"`},
		"two sections of the version": {func(r *toy) {
			r.replace("CHANGELOG.md", "- The toy.\n",
				"The toy.\n\n## v0.1.0 (2026-01-30)\n\n- The wheel.\n")
			r.commit()
		}, "CHANGELOG.md has more than one section of v0.1.0"},
		"headings without changes": {func(r *toy) {
			r.replace("CHANGELOG.md", "- The toy.\n", "### Added\n")
			r.commit()
		}, "CHANGELOG.md lists no changes of v0.1.0"},
		"a check that fails, after a problem": {func(r *toy) {
			r.git("rm", "-q", "CHANGELOG.md")
			r.commit()
			r.write("new.txt", "new")
		}, "new.txt\n  open "},
		"a newer release of a module": {
			func(r *toy) { r.git("tag", "wheel/v0.3.0") }, "wheel/v0.3.0 was released already",
		},
		"a newer version before release": {
			func(r *toy) { r.git("tag", "v0.2.0-rc.1") }, "v0.2.0-rc.1 was released already",
		},
		"a newer release at the remote": {
			func(r *toy) {
				r.elsewhere("tag", "wheel/v0.3.0")
			}, "wheel/v0.3.0 was released already",
		},
		"a tag that is missing": {func(r *toy) { r.elsewhere("tag", "wheel/v0.0.9") },
			"origin has tags that are missing or different here: git fetch --tags --force: wheel/v0.0.9"},
		"a tag that is another one": {func(r *toy) {
			r.git("tag", "v0.0.9", "HEAD~1")
			r.elsewhere("tag", "v0.0.9")
		}, "origin has tags that are missing or different here: git fetch --tags --force: v0.0.9"},
		"no remote": {
			func(r *toy) {
				r.git("remote", "remove", "origin")
			}, "the remote origin, which gets the tags, can't be used",
		},
		"a remote that is away": {func(r *toy) {
			r.git("remote", "set-url", "origin", "../away.git")
		}, "the remote origin, which gets the tags, can't be used"},
		"a commit that is behind": {func(r *toy) {
			r.elsewhere("commit", "-q", "--allow-empty", "-m", "more")
		},
			"the last commit does not come after refs/heads/main of origin"},
		"a commit beside the last release": {func(r *toy) {
			r.git("checkout", "-q", "-b", "side")
			r.commit()
			r.git("tag", "v0.0.9")
			r.git("checkout", "-q", "main")
		}, "the last commit does not come after v0.0.9"},
		"a part of the history": {func(r *toy) {
			r.git("clone", "-q", "--depth=1", "file://"+filepath.ToSlash(r.dir), "../part")
			r.dir = filepath.Join(filepath.Dir(r.dir), "part")
		}, "this clone lacks older commits: git fetch --unshallow"},
		"an exclude directive": {func(r *toy) {
			r.replace("wheel/go.mod", "require", "exclude example.com/other v0.1.0\n\nrequire")
			r.commit()
		}, "wheel/go.mod excludes example.com/other@v0.1.0"},
		"a version that retracts itself": {func(r *toy) {
			r.replace("wheel/go.mod", "require", "retract [v0.0.9, v0.1.0] // round\n\nrequire")
			r.commit()
		}, "wheel/go.mod retracts v0.1.0"},
		"a file that only the workspace has": {func(r *toy) { // no module zip has symbolic links
			r.write("length.txt", "package toy\n\nfunc Length() int { return 4 }\n")
			if err := os.Symlink("length.txt", filepath.Join(r.dir, "length.go")); err != nil {
				r.Skip(err)
			}
			r.write("wheel/length.go",
				"package wheel\n\nimport \"example.com/toy\"\n\nvar Length = toy.Length()\n")
			r.prepare("v0.1.0")
		}, "undefined: toy.Length"},
		"no branch": {
			func(r *toy) { r.git("checkout", "-q", "--detach") }, "no branch is checked out",
		},
		"a file that git ignores": {func(r *toy) {
			r.write("wheel/size.go", "package wheel\n\nconst size = 3\n")
			r.write(".gitignore", "size.go\n")
			r.replace("wheel/wheel.go", "toy.Name()", "toy.Name()[:size]")
			r.prepare("v0.1.0")
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
		"a branch without what the main one has": {func(r *toy) {
			r.git("checkout", "-q", "-b", "topic")
			r.elsewhere("commit", "-q", "--allow-empty", "-m", "a fix")
		}, "the last commit does not come after the main branch of origin"},
		"a branch that a shell would run": {
			func(r *toy) { r.git("checkout", "-q", "-b", "a;b") }, "characters that a shell",
		},
		"another repository that gets pushes": {func(r *toy) {
			r.git("init", "-q", "--bare", "../up.git")
			r.git("push", "-q", "../up.git", "HEAD:refs/heads/main", "HEAD:refs/tags/v0.2.0")
			r.git("remote", "set-url", "--push", "origin", "../up.git")
		}, "git fetch --tags --force: v0.2.0"},
		"two repositories that get pushes": {func(r *toy) {
			r.git("remote", "set-url", "--add", "--push", "origin", "../origin.git")
			r.git("remote", "set-url", "--add", "--push", "origin", "../mirror.git")
		}, "a push goes to several repositories"},
		"a tag with the name of a folder": {func(r *toy) { r.elsewhere("tag", "wheel") },
			"git can't have the tag wheel/v0.1.0 beside the tag wheel"},
		"a tag in a folder with the name of the version": {func(r *toy) {
			r.git("tag", "v0.1.0/rc")
		},
			"git can't have the tag v0.1.0 beside the tag v0.1.0/rc"},
		"an underlined heading of changes": {func(r *toy) {
			r.replace("CHANGELOG.md", "# Changelog\n",
				"# Changelog\n\nUnreleased\n----------\n\n- The wheel.\n")
			r.commit()
		}, "CHANGELOG.md still has a section for what is unreleased"},
		"a clone without old files": {func(r *toy) {
			r.git("config", "remote.origin.promisor", "true")
		},
			"this clone lacks older files"},
		"a file that is not packed": {func(r *toy) {
			r.write("wheel/web/vendor/js/app.js", "wheel()")
			r.write("wheel/web/web.go",
				"package web\n\nimport _ \"embed\"\n\n//go:embed vendor/js/app.js\nvar App string\n")
			r.prepare("v0.1.0")
		}, "pattern vendor/js/app.js: no matching files found"},
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
	// Apidiff says that it leaves such a package out.
	r.write("internal/axle/axle.go", "package axle\n\nfunc Turn() {}\n")
	r.write("internal/alltest/names.go", "package alltest\n\nfunc Names() {}\n")
	r.prepare("v0.1.0")
	r.git("tag", "v0.1.0")
	r.git("tag", "wheel/v0.1.0")
	r.replace("toy.go", "func Size() int { return 3 }",
		"func Size() int { return 4 }\n\nfunc Weight() int { return 3 }")
	r.write("internal/axle/axle.go", "package axle\n")
	r.write("CHANGELOG.md",
		"# Changelog\n\nUnreleased changes are on main.\n\n## v0.1.1 (2026-02-28)\n\nToys have a weight.\n")
	r.write("internal/alltest/names.go", "package alltest\n") // of a module that is in no release
	r.prepare("v0.1.1")
	if said := r.release("check", "v0.1.1"); !strings.Contains(said,
		"git tag -a -m v0.1.1 v0.1.1 ") {
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
		r.write("CHANGELOG.md",
			fmt.Sprintf("# Changelog\n\n## %s (2026-02-28)\n\n- Weight.\n", version))
		r.prepare(version)
		if version == "v0.1.1" {
			refuses(r, version, "Size: removed")
		} else {
			r.release("check", version)
		}
	}
}

// A patch may not take a module away.
func TestCheckMissesAModule(t *testing.T) {
	t.Parallel()
	r := newToy(t)
	r.git("tag", "v0.1.0")
	r.git("tag", "wheel/v0.1.0")
	r.git("rm", "-r", "-q", "wheel")
	r.replace("go.work", "\t./wheel\n", "")
	r.replace("go.work", "replace example.com/toy/wheel v0.1.0 => ./wheel\n", "")
	r.write("internal/alltest/all_test.go", "package alltest\n\nimport _ \"example.com/toy\"\n")
	r.write("CHANGELOG.md", "# Changelog\n\n## v0.1.1 (2026-02-28)\n\n- No wheels.\n")
	r.prepare("v0.1.1")
	refuses(r, "v0.1.1", "example.com/toy/wheel is a module of v0.1.0, and is gone")
}

// A module that had a release, and is now one of those without, is gone, too.
func TestCheckMissesAModuleThatStays(t *testing.T) {
	t.Parallel()
	r := newToy(t)
	r.write("bench/peers/go.mod", "module example.com/toy/bench/peers\n\ngo 1.26.0\n")
	r.write("bench/peers/peers.go", "package peers\n")
	r.replace("go.work", "\t./wheel\n", "\t./wheel\n\t./bench/peers\n")
	r.prepare("v0.1.0")
	for _, tag := range []string{"v0.1.0", "wheel/v0.1.0", "bench/peers/v0.1.0"} {
		r.git("tag", tag)
	}
	r.write("CHANGELOG.md", "# Changelog\n\n## v0.1.1 (2026-02-28)\n\n- No peers.\n")
	r.prepare("v0.1.1")
	refuses(r, "v0.1.1", "example.com/toy/bench/peers is a module of v0.1.0, and is gone")
}

// The go command, which packs the modules from the tags, gets the hashes that prepare has written.
func TestHashesAreThoseOfTheGoCommand(t *testing.T) {
	t.Parallel()
	r := newToy(t)
	named := strings.NewReplacer("v0.1.0", "v2.0.0", "example.com/toy/wheel",
		"github.com/cacheguard/toy/wheel/v2",
		"example.com/toy/internal", "github.com/cacheguard/toy/internal", "example.com/toy",
		"github.com/cacheguard/toy/v2")
	for _, name := range []string{"go.mod", "go.work", "wheel/go.mod", "wheel/go.sum",
		"wheel/wheel.go",
		"internal/alltest/go.mod", "internal/alltest/go.sum", "internal/alltest/all_test.go"} {
		text, err := os.ReadFile(filepath.Join(r.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		r.write(name, named.Replace(string(text)))
	}
	r.prepare("v2.0.0")
	r.git("tag", "v2.0.0")
	r.git("tag", "wheel/v2.0.0")
	r.git("push", "-q", "--tags", "origin", "main")
	origin := filepath.ToSlash(filepath.Join(filepath.Dir(r.dir), "origin.git"))
	env := []string{"GOWORK=off", "GOFLAGS=-mod=readonly -modcacherw",
		"GOMODCACHE=" + filepath.Join(t.TempDir(), "modules"),
		"GOPROXY=direct", "GONOSUMDB=github.com/cacheguard/toy", "GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=url.file://" + origin + ".insteadOf",
		"GIT_CONFIG_VALUE_0=https://github.com/cacheguard/toy"}
	used, err := command(filepath.Join(r.dir, "internal", "alltest"), env, "go", "list", "-test",
		"-deps", "./...")
	if err != nil || !strings.Contains(used, "github.com/cacheguard/toy/wheel/v2") {
		t.Errorf("the go command finds %s, %v", used, err)
	}
}

// Settings of the go command in the environment change nothing.
func TestEnvironment(t *testing.T) {
	r := newToy(t)
	for name, value := range map[string]string{"GOFLAGS": "-run=Nothing", "GOWORK": "off",
		"GOOS": "plan9", "GOARCH": "386",
		"GOPRIVATE": "example.com", "GONOPROXY": "example.com", "GO111MODULE": "off",
		// As in a hook.
		"GIT_DIR":        filepath.Join(r.dir, ".git"),
		"GIT_INDEX_FILE": filepath.Join(r.dir, ".git", "index")} {
		t.Setenv(name, value)
	}
	r.release("check", "v0.1.0")
	r.git("symbolic-ref", "--quiet", "HEAD") // as before
	r.write("wheel/wheel_test.go",
		"package wheel\n\nimport \"testing\"\n\nfunc TestWheel(t *testing.T) { t.Error(\"broken\") }\n")
	r.prepare("v0.1.0")
	refuses(r, "v0.1.0", "wheel_test.go:5: broken")
}

// What prepare refuses leaves the working copy as it is.
func TestPrepareRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil         func(r *toy)
		version, want string
	}{
		"a file that is not committed": {
			func(r *toy) { r.write("new.txt", "new") }, "v0.1.0", "new.txt",
		},
		"a major version that no path has": {
			func(r *toy) {}, "v2.0.0", "example.com/toy@v2.0.0: invalid version",
		},
		"a path that isn't that of a folder": {func(r *toy) {
			r.replace("wheel/go.mod", "toy/wheel", "toy/tyre")
			r.commit()
		}, "v0.1.0", "the module in wheel is example.com/toy/tyre"},
		"a change that git does not show": {func(r *toy) {
			r.git("update-index", "--skip-worktree", "go.work")
			r.replace("go.work", "use (", "use ( // mine")
		}, "v0.1.0", "not as in the last commit: go.work"},
		"no module in the top folder": {
			func(r *toy) {
				r.git("rm", "-q", "go.mod")
				r.commit()
			}, "v0.1.0", "no module in its top folder",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newToy(t)
			c.spoil(r)
			before, err := changes(r.dir)
			if err != nil {
				t.Fatal(err)
			}
			err = run([]string{"-C", r.dir, "prepare", c.version}, &strings.Builder{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("it isn't refused for %q: %v", c.want, err)
			}
			if after, err := changes(r.dir); err != nil || after != before {
				t.Errorf("files are changed: %s, %v", after, err)
			}
		})
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
	r.commit()
	err := run([]string{"-C", r.dir, "try"}, &strings.Builder{})
	if err == nil || !strings.Contains(err.Error(), "toy/wheel: ") ||
		!strings.Contains(err.Error(), "cannot use Of") {
		t.Errorf("a test that doesn't compile: %v", err)
	}
	r.write("wheel/wheel_test.go", "package wheel\n")
	r.replace("wheel/go.mod", "toy v0.1.0", "toy v0.1.0 // indirect")
	r.commit()
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
	r.commit()
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
	r.commit()
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
		if strings.Contains(want, ".go:") && strings.Contains(want, ": undefined") &&
			strings.Count(windows, want) != 1 {
			t.Errorf("%q is said more than once:\n%s", want, windows)
		}
	}
}

// What can't be a release says so before anything is written.
func TestArguments(t *testing.T) {
	for _, args := range [][]string{{}, {"try", "v0.1.0"}, {"prepare"}, {"types"},
		{"tag", "v0.1.0"}, {"prepare", "0.1.0"}, {"check", "v0.1"},
		{"check", "v0.1.1-0.20260131000000-0123456789ab"}} {
		if err := run(append([]string{"-C", "../.."}, args...), &strings.Builder{}); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
	if err := run([]string{"-h"}, &strings.Builder{}); err != nil {
		t.Errorf("help: %v", err)
	}
	if err := run([]string{"-C", t.TempDir(), "try"}, &strings.Builder{}); err == nil {
		t.Error("a folder without a repository is taken")
	}
}

// Versions that paths can't have, modules that require each other in a circle, and released ones
// that require others, are refused.
func TestOrder(t *testing.T) {
	t.Parallel()
	r := newToy(t)
	if c, err := open(r.dir); err != nil || c.fits("v0.1.0") != nil || c.fits("v2.0.0") == nil {
		t.Errorf("paths without /v2 fit v2.0.0, or don't fit v0.1.0: %v", err)
	}
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
		"example.com_toy": {`"version": "v0.1.0"`, `"pkg:golang/example.com/toy@v0.1.0?`},
		"example.com_toy_wheel": {
			`"pkg:golang/example.com/toy@v0.1.0?`, `"pkg:golang/example.com/toy/wheel@v0.1.0?`,
		},
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
	if want := strings.ReplaceAll(string(first), "v0.1.0", "v0.2.0"); err != nil ||
		string(second) != want {
		t.Errorf("%v; go.work is\n%s\nwant\n%s", err, second, want)
	}
}
