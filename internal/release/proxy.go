package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// proxy is a folder. Its subfolder "proxy" has modules in the layout of a module proxy
// (https://go.dev/ref/mod#goproxy-protocol), and "modules" has what the go command has downloaded.
// If a version is packed again, use a new folder, because the old one still has the earlier
// content.
type proxy string

// add publishes a module of the repository, as the go command will pack it.
func (p proxy) add(r *repo, m *mod, version string) (err error) {
	dir, err := p.folder(m)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	write := func(name, text string) {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	gomod, err := os.ReadFile(filepath.Join(r.where(m), "go.mod"))
	if err != nil {
		return err
	}
	write("list", version+"\n")
	write(version+".mod", string(gomod))
	write(version+".info",
		fmt.Sprintf(`{"Version":%q,"Time":%q}`, version, time.Now().UTC().Format(time.RFC3339)))
	// The go command gives a module without a LICENSE the one of the top folder (codeRepo.Zip).
	license := filepath.Join(r.where(m), "LICENSE")
	if _, missing := os.Lstat(license); missing != nil {
		if text, none := command(r.dir, nil, "git", "cat-file", "blob",
			"HEAD:LICENSE"); none == nil {
			err = errors.Join(err, os.WriteFile(license, []byte(text), 0o644))
		}
	}
	archive, failed := os.Create(filepath.Join(dir, version+".zip"))
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	err = zip.CreateFromDir(archive, module.Version{Path: m.path, Version: version}, r.where(m))
	return errors.Join(err, archive.Close())
}

// unpack unpacks a module that was added, into a new folder.
func (p proxy) unpack(m *mod, version, dir string) error {
	from, err := p.folder(m)
	if err != nil {
		return err
	}
	return zip.Unzip(dir, module.Version{Path: m.path, Version: version},
		filepath.Join(from, version+".zip"))
}

// folder returns where the proxy has the versions of a module.
func (p proxy) folder(m *mod) (string, error) {
	escaped, err := module.EscapePath(m.path)
	return filepath.Join(string(p), "proxy", filepath.FromSlash(escaped), "@v"), err
}

// env returns variables for the go command. With these variables it uses no workspace, and finds
// the modules of the repository in the folder and all other modules where this machine finds them.
// It doesn't look for hashes of the repository's modules in the public database, which doesn't have
// them yet.
func (p proxy) env(r *repo) ([]string, error) {
	here, err := command(r.dir, nil, "go", "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return nil, err
	}
	cache, proxies, _ := strings.Cut(strings.TrimSpace(here), "\n")
	var own []string
	for _, m := range r.modules {
		own = append(own, m.path)
	}
	return []string{"GOWORK=off", "GOFLAGS=-mod=mod -modcacherw",
		"GOMODCACHE=" + filepath.Join(string(p), "modules"),
		fmt.Sprintf("GOPROXY=file://%s/proxy,file://%s/cache/download,%s",
			filepath.ToSlash(string(p)), filepath.ToSlash(cache), proxies),
		"GONOSUMDB=" + strings.Join(own, ","), "GONOPROXY=none"}, nil
}

// unset are settings of the go command that would change what the steps find. The values are those
// that the go command has by default. GOFLAGS is a space, because the value of "go env -w" would
// count if GOFLAGS were empty.
var unset = []string{
	"GOFLAGS= ", "GOWORK=auto", "GOOS=", "GOARCH=", "GO111MODULE=", "GOEXPERIMENT=",
}

// ofHooks are variables that git sets for hooks. They would make git in another folder work on the
// repository of the hook.
var ofHooks = []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY",
	"GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_GRAFT_FILE",
	"GIT_SHALLOW_FILE", "GIT_NAMESPACE"}

// newCommand returns a command that runs in a folder, with variables besides those of this process.
func newCommand(dir string, env []string, name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Dir = dir
	own := slices.DeleteFunc(c.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.Contains(ofHooks, name)
	})
	c.Env = slices.Concat(own, unset, env)
	return c
}

// command runs a command in a folder, and returns its output.
func command(dir string, env []string, name string, args ...string) (string, error) {
	c := newCommand(dir, env, name, args...)
	var out, said strings.Builder
	c.Stdout, c.Stderr = &out, &said
	if err := c.Run(); err != nil {
		return out.String(),
			fmt.Errorf("in %s, %s %s: %w\n%s%s", dir, name, strings.Join(args, " "), err, &out,
				&said)
	}
	return out.String(), nil
}
