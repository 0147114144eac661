package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

const apidiff = "golang.org/x/exp/cmd/apidiff@v0.0.0-20261113113407-e3970619a1a4"

// checks are the checks that a release must pass, the cheap ones first. Each returns a list of
// problems, or an error if the check itself fails.
var checks = []func(*release) (wrong []string, err error){clean, untagged, told, plain, prepared, compatible, tested}

// release is a version for which tags are planned.
type release struct {
	*repo
	version string
	last    string // the latest release, or ""
}

// check prints all problems of a release. If there are none, it prints the commands that tag the
// release and push it.
func check(r *repo, version string, out io.Writer) error {
	tags, err := command(r.dir, nil, "git", "tag", "--list", "v*")
	if err != nil {
		return err
	}
	rel := &release{repo: r, version: version}
	for _, tag := range strings.Fields(tags) {
		if semver.Compare(tag, rel.last) > 0 {
			rel.last = tag
		}
	}
	var wrong []string
	for _, c := range checks {
		found, err := c(rel)
		if err != nil {
			return err
		}
		wrong = append(wrong, found...)
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s is not ready:\n  %s", version, strings.Join(wrong, "\n  "))
	}
	if rel.last == "" {
		fmt.Fprintln(out, "# There is no release before this one, so no names were compared.")
	}
	var below []string
	for _, m := range r.released() {
		fmt.Fprintf(out, "git tag -a -m %[1]s %[1]s\n", m.tag(version))
		if m.dir != "." {
			below = append(below, m.tag(version))
		}
	}
	fmt.Fprintf(out, "git push origin HEAD %s\n", version) // alone: GitHub starts no workflow if more than three tags come at once
	if len(below) > 0 {
		fmt.Fprintf(out, "git push origin %s\n", strings.Join(below, " "))
	}
	return nil
}

// clean: a tag is on a commit, so changes that aren't committed are in no release.
func clean(r *release) ([]string, error) {
	status, err := command(r.dir, nil, "git", "status", "--porcelain")
	if err != nil || status == "" {
		return nil, err
	}
	return []string{"files differ from the last commit:\n" + strings.TrimRight(status, "\n")}, nil
}

// untagged: a module proxy keeps the first content of a version for ever.
func untagged(r *release) (wrong []string, err error) {
	tags, err := command(r.dir, nil, "git", "tag", "--list")
	for _, m := range r.released() {
		if slices.Contains(strings.Fields(tags), m.tag(r.version)) {
			wrong = append(wrong, "there is a tag "+m.tag(r.version)+" already")
		}
	}
	if semver.Compare(r.version, r.last) < 0 {
		wrong = append(wrong, fmt.Sprintf("%s was released already, and is newer", r.last))
	}
	return wrong, err
}

// told: CHANGELOG.md begins with what the version has, under its name and date, and has no section
// "Unreleased", whose changes would be in the version although they are not under its name.
func told(r *release) (wrong []string, err error) {
	text, err := os.ReadFile(filepath.Join(r.dir, "CHANGELOG.md"))
	if err != nil {
		return nil, err
	}
	sections := regexp.MustCompile(`(?m)^## `).Split("\n"+string(text), -1)[1:]
	for i, section := range sections {
		heading, changes, _ := strings.Cut(section, "\n")
		date, named := strings.CutPrefix(heading, r.version+" (")
		switch _, err := time.Parse("2006-01-02)", strings.TrimSpace(date)); {
		case i == 0 && (!named || err != nil):
			wrong = append(wrong, fmt.Sprintf("CHANGELOG.md does not begin with %q and a date in brackets, but with %q", "## "+r.version, heading))
		case i == 0 && !strings.Contains(changes, "\n- "):
			wrong = append(wrong, "CHANGELOG.md lists no changes of "+r.version)
		case strings.EqualFold(strings.Trim(heading, " []"), "unreleased"):
			wrong = append(wrong, "CHANGELOG.md still has a section for what is unreleased")
		}
	}
	if len(sections) == 0 {
		wrong = append(wrong, "CHANGELOG.md has no section")
	}
	return wrong, nil
}

// plain: go run module@version refuses a module with replace directives.
func plain(r *release) (wrong []string, err error) {
	for _, m := range r.released() {
		for _, path := range m.replaced {
			wrong = append(wrong, fmt.Sprintf("%s/go.mod replaces %s", m.dir, path))
		}
	}
	return wrong, nil
}

// prepared: each module requires this version of the other modules, with the hashes that they will
// have.
func prepared(r *release) (wrong []string, err error) {
	work, err := os.MkdirTemp("", "check")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	c, err := copied(r.repo, filepath.Join(work, "copy"))
	if err != nil {
		return nil, err
	}
	if err := prepare(c, r.version, proxy(filepath.Join(work, "proxy"))); err != nil {
		return nil, err
	}
	names := []string{"go.work"}
	for _, m := range c.modules {
		dir := filepath.FromSlash(m.dir)
		names = append(names, filepath.Join(dir, "go.mod"), filepath.Join(dir, "go.sum"))
	}
	for _, name := range names {
		was, _ := os.ReadFile(filepath.Join(r.dir, name)) // a missing file is treated as empty
		is, _ := os.ReadFile(filepath.Join(c.dir, name))
		if !bytes.Equal(was, is) {
			wrong = append(wrong, name+" is not as prepare writes it")
		}
	}
	return wrong, nil
}

// compatible: names that users compile against may be removed or changed only with a new minor
// version, and from 1.0 on only with a new major version.
func compatible(r *release) (wrong []string, err error) {
	same := semver.MajorMinor
	if semver.Major(r.version) != "v0" {
		same = semver.Major
	}
	if r.last == "" || same(r.last) != same(r.version) {
		return nil, nil
	}
	work, err := os.MkdirTemp("", "names")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	before := &repo{dir: filepath.Join(work, "before")}
	if _, err := command(r.dir, nil, "git", "worktree", "add", "--detach", before.dir, r.last); err != nil {
		return nil, err
	}
	defer func() { _, _ = command(r.dir, nil, "git", "worktree", "remove", "--force", before.dir) }()
	for _, m := range r.released() {
		if _, err := os.Stat(filepath.Join(before.where(m), "go.mod")); err != nil {
			continue // a new module
		}
		was, err := namesOf(before, m, filepath.Join(work, "was"))
		if err != nil {
			return nil, err
		}
		is, err := namesOf(r.repo, m, filepath.Join(work, "is"))
		if err != nil {
			return nil, err
		}
		lost, err := command(r.dir, append(os.Environ(), "GOWORK=off"), "go", "run", apidiff, "-m", "-incompatible", was, is)
		if err != nil {
			return nil, err
		}
		if lost = strings.TrimSpace(lost); lost != "" {
			wrong = append(wrong, fmt.Sprintf("%s has other names than in %s:\n%s", m.path, r.last, lost))
		}
	}
	return wrong, nil
}

// namesOf writes the names that a module exports to a file.
func namesOf(r *repo, m *mod, file string) (string, error) {
	_, err := command(r.where(m), nil, "go", "run", apidiff, "-m", "-w", file, m.path)
	return file, err
}

// tested: each module passes go vet and its tests, as far as they run on a machine that has nothing
// but Go. .ci/run has the others.
func tested(r *release) (wrong []string, err error) {
	for _, m := range r.modules {
		for _, do := range []string{"vet", "test"} {
			if _, err := command(r.where(m), nil, "go", do, "./..."); err != nil {
				wrong = append(wrong, err.Error())
				break
			}
		}
	}
	return wrong, nil
}
