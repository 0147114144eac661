package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// unreleased are modules whose packages are not imported or run by version.
var unreleased = []string{"bench/peers", "internal/alltest", "internal/release"}

// repo is a working copy of the repository.
type repo struct {
	dir     string
	modules []*mod // sorted: the modules that a module requires come before it
}

// mod is a module of the repository.
type mod struct {
	path     string
	dir      string // relative to the repository, with slashes, "." for the root
	released bool
	needs    []string // paths of the modules of this repository that the module requires
	replaced []string // paths that have a replace directive
}

// tag returns the name of the git tag for a version of the module.
func (m *mod) tag(version string) string {
	if m.dir == "." {
		return version
	}
	return m.dir + "/" + version
}

// open reads the modules of a repository.
func open(dir string) (*repo, error) {
	r := &repo{dir: dir}
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != dir && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata"):
			return filepath.SkipDir
		case entry.Name() != "go.mod":
			return nil
		}
		m, err := readModule(dir, file)
		r.modules = append(r.modules, m)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, r.sort()
}

// at checks a commit out into another folder, as users get it. end removes it.
func (r *repo) at(commit, dir string) (c *repo, end func(), err error) {
	if _, err := command(r.dir, nil, "git", "-c", "core.autocrlf=false", "worktree", "add", "--detach", dir, commit); err != nil {
		return nil, nil, err
	}
	end = func() { _, _ = command(r.dir, nil, "git", "worktree", "remove", "--force", dir) }
	if c, err = open(dir); err != nil {
		end()
	}
	return c, end, err
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
	m := &mod{path: f.Module.Mod.Path, dir: filepath.ToSlash(rel)}
	m.released = !slices.Contains(unreleased, m.dir)
	for _, require := range f.Require {
		m.needs = append(m.needs, require.Mod.Path) // also modules outside of this repository; sort removes them
	}
	for _, replace := range f.Replace {
		m.replaced = append(m.replaced, replace.Old.Path)
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

// where returns the folder of a module.
func (r *repo) where(m *mod) string { return filepath.Join(r.dir, filepath.FromSlash(m.dir)) }

// released returns the modules that get a tag.
func (r *repo) released() []*mod {
	return slices.DeleteFunc(slices.Clone(r.modules), func(m *mod) bool { return !m.released })
}
