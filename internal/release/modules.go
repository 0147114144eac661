package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

// unreleased are the modules that get no tag, because nobody imports or runs their packages by
// version.
var unreleased = []string{"bench/peers", "internal/alltest", "internal/release"}

// repo is a clone of the repository that has one commit checked out.
type repo struct {
	dir     string
	root    *mod
	modules []*mod // sorted: the modules that a module requires come before it
}

// mod is a module of the repository.
type mod struct {
	path     string
	dir      string // relative to the repository, with slashes, "." for the root
	released bool
	needs    []string // paths of the modules of this repository that the module requires
	file     *modfile.File
}

// tag returns the name of the git tag for a version of the module.
func (m *mod) tag(version string) string {
	if m.dir == "." {
		return version
	}
	return m.dir + "/" + version
}

// workingCopy returns the top folder of the repository that a folder is in.
func workingCopy(dir string) (string, error) {
	top, err := command(dir, nil, "git", "rev-parse", "--show-toplevel")
	return strings.TrimRight(top, "\r\n"), err
}

// changes returns what git status says of files that differ from the last commit.
func changes(here string) (string, error) {
	return command(here, nil, "git", "status", "--porcelain", "--untracked-files=all")
}

// clone checks a commit out into a new folder, with the same bytes that the go command reads from
// the repository. Files that aren't in the commit, and settings of this machine, have no effect.
// Nothing is written into the repository.
func clone(from, commit, to string) (*repo, error) {
	if _, err := command(from, nil, "git", "clone", "--quiet", "--no-checkout", "--template=",
		"-c", "core.autocrlf=input", "-c", "core.eol=lf", // these two as the go command has them
		"-c", "core.attributesFile=/dev/null", "-c", "core.hooksPath=/dev/null", from,
		to); err != nil {
		return nil, err
	}
	// These variables keep settings of this machine, such as filters, out of the checkout.
	alone := []string{"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1"}
	if _, err := command(to, alone, "git", "checkout", "--quiet", "--detach", commit); err != nil {
		return nil, err
	}
	return open(to)
}

// open reads the modules of a clone.
func open(dir string) (*repo, error) {
	r := &repo{dir: dir}
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != dir &&
			(strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata"):
			return filepath.SkipDir
		case entry.Name() != "go.mod":
			return nil
		}
		m, err := readModule(dir, file)
		if err != nil {
			return err
		}
		if m.dir == "." {
			r.root = m
		}
		r.modules = append(r.modules, m)
		return nil
	})
	if err == nil && r.root == nil {
		err = errors.New("the repository has no module in its top folder")
	}
	if err != nil {
		return nil, err
	}
	return r, r.sort()
}

func readModule(dir, file string) (*mod, error) {
	f, err := parse(file)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(dir, filepath.Dir(file))
	if err != nil {
		return nil, err
	}
	m := &mod{path: f.Module.Mod.Path, dir: filepath.ToSlash(rel), file: f}
	m.released = !slices.Contains(unreleased, m.dir)
	for _, require := range f.Require {
		// Also modules outside of this repository; sort removes them.
		m.needs = append(m.needs, require.Mod.Path)
	}
	return m, nil
}

func parse(file string) (*modfile.File, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	f, err := modfile.Parse(file, text, nil)
	if err == nil && f.Module == nil {
		err = fmt.Errorf("%s names no module", file)
	}
	return f, err
}

// sort orders the modules so that each module comes after the modules that it requires.
func (r *repo) sort() error {
	byPath := map[string]*mod{}
	for _, m := range r.modules {
		byPath[m.path] = m
	}
	slices.SortFunc(r.modules, func(a, b *mod) int { return cmp.Compare(a.dir, b.dir) })
	var sorted []*mod
	state := map[*mod]int{} // 1: its requirements are being sorted, 2: it is sorted
	var visit func(m *mod) error
	visit = func(m *mod) error {
		switch state[m] {
		case 1:
			return fmt.Errorf("module %s requires itself by way of others", m.path)
		case 2:
			return nil
		}
		state[m] = 1
		m.needs = slices.DeleteFunc(m.needs, func(path string) bool { return byPath[path] == nil })
		for _, path := range m.needs {
			need := byPath[path]
			if m.released && !need.released {
				return fmt.Errorf("module %s requires %s, which is in no release", m.path, path)
			}
			if err := visit(need); err != nil {
				return err
			}
		}
		state[m] = 2
		sorted = append(sorted, m)
		return nil
	}
	for _, m := range r.modules {
		if err := visit(m); err != nil {
			return err
		}
	}
	r.modules = sorted
	return nil
}

// fits says what keeps the released modules from having a version: the major version is in the path
// of a module, and a tag belongs to the module in the folder that the tag names.
func (r *repo) fits(version string) error {
	base, major, _ := module.SplitPathVersion(r.root.path)
	for _, m := range r.released() {
		if err := module.Check(m.path, version); err != nil {
			return err
		}
		if want := path.Join(base, m.dir) + major; m.path != want {
			return fmt.Errorf("the module in %s is %s, but users look for %s there", m.dir, m.path,
				want)
		}
	}
	return nil
}

// where returns the folder of a module.
func (r *repo) where(m *mod) string { return filepath.Join(r.dir, filepath.FromSlash(m.dir)) }

// released returns the modules that get a tag.
func (r *repo) released() []*mod {
	return slices.DeleteFunc(slices.Clone(r.modules), func(m *mod) bool { return !m.released })
}
