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

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

const apidiff = "golang.org/x/exp/cmd/apidiff@v0.0.0-20261113113407-e3970619a1a4"

// checks are the checks that a release must pass, the cheap ones first. Each returns a list of
// problems, or an error if the check itself fails.
var checks = []func(*release) (wrong []string, err error){clean, untagged, told, plain, prepared, compatible, tested}

// release is a version for which tags are planned.
type release struct {
	*repo   // the commit that gets the tags, as users get it
	here    *repo
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
	work, err := os.MkdirTemp("", "commit")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	commit, end, err := r.at("HEAD", filepath.Join(work, "head"))
	if err != nil {
		return err
	}
	defer end()
	rel := &release{repo: commit, here: r, version: version}
	for _, tag := range strings.Fields(tags) {
		if semver.Compare(tag, rel.last) > 0 && semver.Prerelease(tag) == "" {
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

// clean: a tag is on a commit, so changes that aren't committed are in no release. The commit is
// pushed to its branch.
func clean(r *release) (wrong []string, err error) {
	status, err := command(r.here.dir, nil, "git", "status", "--porcelain", "--untracked-files=all")
	if err == nil && status != "" {
		wrong = append(wrong, "files differ from the last commit:\n"+strings.TrimRight(status, "\n"))
	}
	if _, err := command(r.here.dir, nil, "git", "symbolic-ref", "--quiet", "HEAD"); err != nil {
		wrong = append(wrong, "no branch is checked out")
	}
	return wrong, err
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
	sections := regexp.MustCompile(`(?m)^## `).Split(string(text), 3)
	heading, changes, _ := strings.Cut(strings.Join(sections[1:min(2, len(sections))], ""), "\n")
	date, named := strings.CutPrefix(heading, r.version+" (")
	switch at, err := time.Parse("2006-01-02)", strings.TrimSpace(date)); {
	case !named || err != nil || time.Until(at) > 24*time.Hour:
		wrong = append(wrong, fmt.Sprintf("CHANGELOG.md does not begin with %q and a date in brackets, but with %q", "## "+r.version, heading))
	case !regexp.MustCompile(`(?m)^[-*+] +\S`).MatchString(changes):
		wrong = append(wrong, "CHANGELOG.md lists no changes of "+r.version)
	}
	if regexp.MustCompile(`(?mi)^#* *\[?unreleased\b`).Match(text) {
		wrong = append(wrong, "CHANGELOG.md still has a section for what is unreleased")
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
	before, end, err := r.at(r.last, filepath.Join(work, "before"))
	if err != nil {
		return nil, err
	}
	defer end()
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

// namesOf writes the names that a module exports to a file. The modules below it are used, but are
// no part of it.
func namesOf(r *repo, m *mod, file string) (string, error) {
	goVersion, err := command(r.where(m), nil, "go", "list", "-m", "-f", "{{.GoVersion}}", m.path)
	if err != nil {
		return "", err
	}
	work := fmt.Sprintf("go %s\n\nuse %s\n", strings.TrimSpace(goVersion), modfile.AutoQuote(r.where(m)))
	for _, other := range r.modules {
		if other.path != m.path {
			work += fmt.Sprintf("\nreplace %s => %s\n", other.path, modfile.AutoQuote(r.where(other)))
		}
	}
	if err := os.WriteFile(file+".work", []byte(work), 0o644); err != nil {
		return "", err
	}
	_, err = command(r.where(m), append(os.Environ(), "GOWORK="+file+".work"), "go", "run", apidiff, "-m", "-w", file, m.path)
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
