package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// write writes what prepare changes in the last commit into the working copy.
func write(r *repo, here, version string, p proxy) error {
	before, err := clone(r.dir, "HEAD", filepath.Join(string(p), "before"))
	if err != nil {
		return err
	}
	asCommitted := func() error {
		differ, err := changes(here)
		if err != nil {
			return err
		}
		if differ != "" {
			return fmt.Errorf("commit first, because a version is made from the last commit:\n%s",
				differ)
		}
		if hidden := before.changed(here); len(hidden) > 0 { // by git update-index
			return fmt.Errorf("these files are not as in the last commit: %s",
				strings.Join(hidden, " "))
		}
		return nil
	}
	if err := asCommitted(); err != nil {
		return err
	}
	if _, err := prepare(r, version, p); err != nil {
		return err
	}
	if err := asCommitted(); err != nil { // somebody may have changed a file meanwhile
		return err
	}
	for _, name := range r.changed(here) {
		text, err := os.ReadFile(filepath.Join(r.dir, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(here, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// changed returns the files, of those that prepare writes, that are different in another folder.
func (r *repo) changed(other string) (names []string) {
	all := []string{"go.work"}
	for _, m := range r.modules {
		dir := filepath.FromSlash(m.dir)
		all = append(all, filepath.Join(dir, "go.mod"), filepath.Join(dir, "go.sum"))
	}
	for _, name := range all {
		is, _ := os.ReadFile(filepath.Join(r.dir, name)) // a missing file is treated as empty
		was, _ := os.ReadFile(filepath.Join(other, name))
		if !bytes.Equal(was, is) {
			names = append(names, name)
		}
	}
	return names
}

// prepare writes the version into every go.mod, and the hashes of the modules with this version
// into every go.sum. Afterwards the proxy has the modules. It returns the environment in which the
// go command finds them.
func prepare(r *repo, version string, p proxy) (env []string, err error) {
	if env, err = p.env(r); err != nil {
		return nil, err
	}
	if err := workspace(r, version); err != nil { // because go.work is packed with the root module
		return nil, err
	}
	for _, m := range r.modules {
		if err := errors.Join(require(r, m, version), forget(r, m)); err != nil {
			return nil, err
		}
		if _, err := command(r.where(m), env, "go", "mod", "tidy"); err != nil {
			return nil, err
		}
		if m.released {
			if err := p.add(r, m, version); err != nil {
				return nil, err
			}
		}
	}
	return env, nil
}

// require makes a module require the version of the repository's other modules.
func require(r *repo, m *mod, version string) error {
	file := filepath.Join(r.where(m), "go.mod")
	f, err := parse(file)
	if err != nil {
		return err
	}
	var all []*modfile.Require
	for _, q := range f.Require {
		if slices.Contains(m.needs, q.Mod.Path) {
			q.Mod.Version = version
		}
		all = append(all, q)
	}
	f.SetRequireSeparateIndirect(all)
	f.Cleanup()
	text, err := f.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// forget removes the hashes of the repository's modules from go.sum, so that tidy writes new ones.
func forget(r *repo, m *mod) error {
	file := filepath.Join(r.where(m), "go.sum")
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	var kept strings.Builder
	for line := range strings.Lines(string(text)) {
		path, _, _ := strings.Cut(line, " ")
		if !slices.ContainsFunc(r.modules, func(m *mod) bool { return m.path == path }) {
			kept.WriteString(line)
		}
	}
	return os.WriteFile(file, []byte(kept.String()), 0o644)
}

// workspace makes go.work use the modules in the repository when others require them by version.
// Otherwise the go command would ask a proxy for their go.mod files, which the proxy doesn't have
// yet.
func workspace(r *repo, version string) error {
	file := filepath.Join(r.dir, "go.work")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	work, err := modfile.ParseWork(file, text, nil)
	if err != nil {
		return err
	}
	for _, m := range r.released() {
		if renumbered(work, m.path, version) {
			continue
		}
		if err := work.AddReplace(m.path, version, "./"+strings.TrimPrefix(m.dir, "."),
			""); err != nil {
			return err
		}
	}
	work.SortBlocks()
	work.Cleanup()
	return os.WriteFile(file, modfile.Format(work.Syntax), 0o644)
}

// renumbered gives the replacement of a module the version, where it stands. It reports whether
// go.work replaces the module.
func renumbered(work *modfile.WorkFile, path, version string) bool {
	for _, r := range work.Replace {
		if i := slices.Index(r.Syntax.Token, r.Old.Version); r.Old.Path == path && i >= 0 {
			r.Old.Version, r.Syntax.Token[i] = version, version
			return true
		}
	}
	return false
}
