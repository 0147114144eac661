package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// proxy is a folder with modules in the layout of a module proxy
// (https://go.dev/ref/mod#goproxy-protocol).
type proxy string

// add publishes a module of the repository.
func (p proxy) add(r *repo, m *mod, version string) (err error) {
	escaped, err := module.EscapePath(m.path)
	if err != nil {
		return err
	}
	dir := filepath.Join(string(p), filepath.FromSlash(escaped), "@v")
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
	write(version+".info", fmt.Sprintf(`{"Version":%q,"Time":%q}`, version, time.Now().UTC().Format(time.RFC3339)))
	archive, failed := os.Create(filepath.Join(dir, version+".zip"))
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	err = zip.CreateFromDir(archive, module.Version{Path: m.path, Version: version}, r.where(m))
	return errors.Join(err, archive.Close())
}

// env returns an environment in which the go command finds the modules of the repository in the
// folder, outside of any workspace. The go command doesn't look for their hashes in the public
// database, which doesn't have them yet.
func (p proxy) env(r *repo) []string {
	root := r.modules[0].path // all other modules require the root
	return append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod",
		"GOPROXY=file://"+filepath.ToSlash(string(p))+","+goEnv("GOPROXY"), "GONOSUMDB="+root+","+root+"/*")
}

// apart returns an environment in which the go command stores downloaded modules in a separate
// folder, but copies as many as it can from the modules on the machine. If a version is packed
// again, use a new folder, because the old one still has the earlier content of the version.
func apart(env []string, cache string) []string {
	before := "file://" + filepath.ToSlash(filepath.Join(goEnv("GOMODCACHE"), "cache", "download"))
	for i, e := range env {
		if own, ok := strings.CutPrefix(e, "GOPROXY=file://"); ok {
			first, others, _ := strings.Cut(own, ",")
			env[i] = "GOPROXY=file://" + first + "," + before + "," + others
		}
		if flags, ok := strings.CutPrefix(e, "GOFLAGS=-mod=mod"); ok {
			env[i] = "GOFLAGS=-mod=mod -modcacherw" + flags
		}
	}
	return append(env, "GOMODCACHE="+cache)
}

func goEnv(name string) string {
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// command runs a command in a folder, and returns its output.
func command(dir string, env []string, name string, args ...string) (string, error) {
	c := exec.Command(name, args...)
	c.Dir, c.Env = dir, env
	var out, said strings.Builder
	c.Stdout, c.Stderr = &out, &said
	if err := c.Run(); err != nil {
		return out.String(), fmt.Errorf("in %s, %s %s: %w\n%s%s", dir, name, strings.Join(args, " "), err, &out, &said)
	}
	return out.String(), nil
}
