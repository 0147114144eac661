package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// mostModules is the largest number of modules that a user of the root module may get, including
// the user's own module.
const mostModules = 25

// try packs copies of the modules as a unique version, and type-checks each module outside of the
// workspace. Then it counts the modules that come with each of them.
func try(r *repo, out io.Writer) error {
	work, err := os.MkdirTemp("", "try")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	c, err := copied(r, filepath.Join(work, "copy"))
	if err != nil {
		return err
	}
	p := proxy(filepath.Join(work, "proxy"))
	// The version is a new one each time. So the go command finds no older copy of the repository's
	// modules, but uses other modules that it has already built.
	version := fmt.Sprintf("v0.0.0-try.%d", time.Now().UnixNano())
	if err := prepare(c, version, p); err != nil {
		return err
	}
	if err := tidy(r, c); err != nil {
		return err
	}
	for _, m := range c.modules {
		if err := typeCheck(c.where(m), p.env(c), "./..."); err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
	}
	fmt.Fprintf(out, "modules that come with each, itself and its user counted:\n")
	for i, m := range c.released() {
		n, err := weight(c, m, version, p, filepath.Join(work, fmt.Sprint("user", i)))
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

// tidy checks that nothing except versions and hashes of the repository's own modules had to be
// written into a copy's go.mod and go.sum.
func tidy(r, copied *repo) error {
	var versions []string // versions, and what may follow them
	for _, m := range r.modules {
		versions = append(versions, regexp.QuoteMeta(m.path)+` v\S+`)
	}
	own := regexp.MustCompile(`(` + strings.Join(versions, "|") + `)( h1:\S+\n)?`)
	for _, m := range r.modules {
		for _, name := range []string{"go.mod", "go.sum"} {
			was, _ := os.ReadFile(filepath.Join(r.where(m), name)) // a missing file is treated as empty
			is, _ := os.ReadFile(filepath.Join(copied.where(m), name))
			if !bytes.Equal(own.ReplaceAll(was, nil), own.ReplaceAll(is, nil)) {
				return fmt.Errorf("%s is not tidy; go mod tidy makes it\n%s", path.Join(m.dir, name), is)
			}
		}
	}
	return nil
}

// weight returns how many modules a user of all packages of a module gets.
func weight(r *repo, m *mod, version string, p proxy, dir string) (int, error) {
	packages, err := command(r.where(m), p.env(r), "go", "list", "-f", `{{if ne .Name "main"}}{{.ImportPath}}{{end}}`, "./...")
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
		if _, err := command(dir, p.env(r), "go", "mod", "tidy"); err != nil {
			return 0, err
		}
	}
	all, err := command(dir, p.env(r), "go", "list", "-m", "all")
	return strings.Count(all, "\n"), err
}

// copied copies the files of the repository that git tracks or would add.
func copied(r *repo, dir string) (*repo, error) {
	names, err := command(r.dir, nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(names, "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(r.dir, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			return nil, err
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(to, content, 0o644); err != nil {
			return nil, err
		}
	}
	return open(dir)
}
