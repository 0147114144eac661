package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/mod/module"
)

// mostModules is the largest number of modules that a user of the root module may get, including
// the user's own module.
const mostModules = 25

// try packs the modules as an unusual version, and type-checks each module outside of the
// workspace. Then it counts the modules that come with each of them.
func try(r *repo, work string, out io.Writer) error {
	c, err := clone(r.dir, "HEAD", filepath.Join(work, "packed"))
	if err != nil {
		return err
	}
	_, major, _ := module.SplitPathVersion(r.root.path)
	version := cmp.Or(module.PathMajorPrefix(major), "v0") + ".0.0-try"
	env, err := prepare(c, version, proxy(work))
	if err != nil {
		return err
	}
	if err := errors.Join(tidy(r, c), apart(c, version, proxy(work), env)); err != nil {
		return err
	}
	fmt.Fprintf(out, "modules that come with each, itself and its user counted:\n")
	for i, m := range c.released() {
		n, err := weight(c, m, version, env, filepath.Join(work, fmt.Sprint("user", i)))
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%4d  %s\n", n, m.path)
		if m.dir == "." && n > mostModules {
			return fmt.Errorf("%s brings %d modules, at most %d are wanted", m.path, n, mostModules)
		}
	}
	return nil
}

// apart type-checks each module without the workspace, in the environment that prepare returned.
// For a released module it checks only the packed files. Some files, such as symbolic links, aren't
// packed.
func apart(r *repo, version string, p proxy, env []string) error {
	var errs []error
	for _, m := range r.modules {
		dir := r.where(m)
		if m.released {
			dir = filepath.Join(string(p), "unpacked", filepath.FromSlash(m.dir), "module")
			if err := p.unpack(m, version, dir); err != nil {
				return err
			}
		}
		if err := typeCheck(dir, env, "./..."); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.path, err))
		}
	}
	return errors.Join(errs...)
}

// tidy checks that nothing except versions and hashes of the repository's own modules had to be
// written into the go.mod and go.sum of another clone.
func tidy(r, prepared *repo) error {
	var versions []string // versions, and what may follow them
	for _, m := range r.modules {
		versions = append(versions, regexp.QuoteMeta(m.path)+` v\S+`)
	}
	own := regexp.MustCompile(`(` + strings.Join(versions, "|") + `)( h1:\S+\n)?`)
	for _, m := range r.modules {
		for _, name := range []string{"go.mod", "go.sum"} {
			// A missing file is treated as empty.
			was, _ := os.ReadFile(filepath.Join(r.where(m), name))
			is, _ := os.ReadFile(filepath.Join(prepared.where(m), name))
			if !bytes.Equal(own.ReplaceAll(was, nil), own.ReplaceAll(is, nil)) {
				return fmt.Errorf("%s is not tidy; go mod tidy makes it\n%s",
					path.Join(m.dir, name), is)
			}
		}
	}
	return nil
}

// weight returns how many modules a user of all packages of a module gets.
func weight(r *repo, m *mod, version string, env []string, dir string) (int, error) {
	packages, err := command(r.where(m), env, "go", "list", "-f",
		`{{if ne .Name "main"}}{{.ImportPath}}{{end}}`, "./...")
	if err != nil {
		return 0, err
	}
	text := "package user\n"
	for _, name := range strings.Fields(packages) {
		if !strings.Contains(name, "/internal/") {
			text += fmt.Sprintf("\nimport _ %q\n", name)
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return 0, err
	}
	gomod := fmt.Sprintf("module example.com/user\n\ngo 1.26.0\n\nrequire %s %s\n", m.path, version)
	for name, content := range map[string]string{"go.mod": gomod, "user.go": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return 0, err
		}
	}
	if strings.Contains(text, "import") { // otherwise tidy would drop the module
		if _, err := command(dir, env, "go", "mod", "tidy"); err != nil {
			return 0, err
		}
	}
	all, err := command(dir, env, "go", "list", "-m", "all")
	return strings.Count(all, "\n"), err
}
