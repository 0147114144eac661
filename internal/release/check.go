package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

const apidiff = "golang.org/x/exp/cmd/apidiff@v0.0.0-20261113113407-e3970619a1a4"

// checks are the checks that a release must pass. Each returns a list of problems, or an error if
// the check itself fails. Those in the second group take minutes, so they run only if the first
// group finds nothing.
var checks = [][]func(*release) (wrong []string, err error){
	{clean, follows, newer, told, plain}, {prepared, compatible, tested},
}

// release is a version for which tags are planned.
type release struct {
	*repo   // the commit that gets the tags, as users get it
	version string
	here    string            // the working copy
	work    string            // a temporary folder
	commit  string            // the hash of the commit
	branch  string            // the branch that is checked out, as refs/heads/main, or ""
	tags    map[string]string // refs of the working copy
	origin  map[string]string // refs of the remote "origin"
	unread  error             // why the refs of origin are not known
	last    string            // the latest release, or ""
}

// check prints the problems of a release. If there are none, it prints the commands that tag the
// release and push it.
func check(r *repo, here, version, work string, out io.Writer) error {
	rel := &release{repo: r, version: version, here: here, work: work}
	commit, err := command(r.dir, nil, "git", "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	rel.commit = strings.TrimSpace(commit)
	branch, _ := command(here, nil, "git", "symbolic-ref", "--quiet", "HEAD")
	rel.branch = strings.TrimSpace(branch)
	if rel.tags, err = refs(here, "."); err != nil {
		return err
	}
	gets, err := command(here, nil, "git", "remote", "get-url", "--push", "--all", "origin")
	switch gets = strings.TrimSpace(gets); {
	case err != nil:
		rel.unread = err
	case strings.Contains(gets, "\n"):
		rel.unread = errors.New(
			"a push goes to several repositories, and one of them may take it without the others")
	default:
		rel.origin, rel.unread = refs(here, gets)
	}
	for ref := range rel.tags {
		if tag, v := tagged(ref); tag == v && semver.Prerelease(v) == "" &&
			semver.Compare(v, rel.last) > 0 {
			rel.last = v
		}
	}
	var wrong []string
	for _, group := range checks {
		for _, c := range group {
			found, err := c(rel)
			wrong = append(wrong, found...)
			if err != nil {
				wrong = append(wrong, err.Error())
			}
		}
		if len(wrong) > 0 {
			return fmt.Errorf("%s is not ready:\n  %s", version, strings.Join(wrong, "\n  "))
		}
	}
	if rel.last == "" {
		fmt.Fprintln(out, "# There is no release before this one, so no names were compared.")
	}
	fmt.Fprintln(out, strings.Join(rel.commands(), " &&\n")) // a command that fails ends all
	return nil
}

// commands returns the commands that publish the release. They name the commit, which need not be
// the last one any more.
func (r *release) commands() (all []string) {
	push := "git push --atomic --no-follow-tags origin "
	var below []string
	for _, m := range r.released() {
		all = append(all, fmt.Sprintf("git tag -a -m %[1]s %[1]s %s", m.tag(r.version), r.commit))
		if m.dir != "." {
			below = append(below, "refs/tags/"+m.tag(r.version))
		}
	}
	// Alone: GitHub starts no workflow if more than three tags come at once.
	all = append(all, push+r.commit+":"+r.branch+" refs/tags/"+r.version)
	if len(below) > 0 {
		all = append(all, push+strings.Join(below, " "))
	}
	return all
}

// refs returns the branches and tags of a repository, with the objects that they name.
func refs(dir, remote string) (map[string]string, error) {
	text, err := command(dir, nil, "git", "ls-remote", remote)
	all := map[string]string{}
	for line := range strings.Lines(text) {
		object, name, _ := strings.Cut(strings.TrimSpace(line), "\t")
		all[name] = object
	}
	return all, err
}

// tagged returns the tag that a ref is, and the version in it. A ref that is no tag of a version
// has "" for both.
func tagged(ref string) (tag, version string) {
	tag, is := strings.CutPrefix(ref, "refs/tags/")
	if version = path.Base(tag); !is || semver.Canonical(version) != version {
		return "", ""
	}
	return tag, version
}

// clean: a tag is on a commit, so changes that aren't committed are in no release. The commit is
// pushed to its branch.
func clean(r *release) (wrong []string, err error) {
	differ, err := changes(r.here)
	if differ != "" {
		wrong = append(wrong,
			"files differ from the last commit:\n"+strings.TrimRight(differ, "\n"))
	}
	switch {
	case r.branch == "":
		wrong = append(wrong, "no branch is checked out")
	case !regexp.MustCompile(`^[\w./-]+$`).MatchString(r.branch): // it is a part of the commands
		wrong = append(wrong,
			fmt.Sprintf("the branch %q has characters that a shell may take for its own", r.branch))
	}
	return wrong, err
}

// follows: the commit comes after all that origin and the last release have. Otherwise the push of
// the branch would fail, or a version would lack what an older one has.
func follows(r *release) (wrong []string, err error) {
	if r.unread != nil {
		wrong = append(wrong,
			fmt.Sprintf("the remote origin, which gets the tags, can't be used: %v", r.unread))
	}
	shallow, err := command(r.here, nil, "git", "rev-parse", "--is-shallow-repository")
	if strings.TrimSpace(shallow) == "true" {
		wrong = append(wrong, "this clone lacks older commits: git fetch --unshallow")
	}
	if partial, _ := command(r.here, nil, "git", "config", "--type=bool", "--get-regexp",
		`^remote\..*\.promisor$`); strings.Contains(partial, " true\n") {
		wrong = append(wrong, "this clone lacks older files: clone the repository without --filter")
	}
	var missing []string
	for ref, object := range r.origin {
		if tag, _ := tagged(ref); tag != "" && r.tags[ref] != object {
			missing = append(missing, tag)
		}
	}
	if slices.Sort(missing); len(missing) > 0 {
		wrong = append(wrong,
			fmt.Sprintf(
				"origin has tags that are missing or different here: git fetch --tags --force: %s",
				strings.Join(missing, " ")))
	}
	after := func(what, object string) {
		if object == "" {
			return
		}
		if _, no := command(r.here, nil, "git", "merge-base", "--is-ancestor", object,
			r.commit); no != nil {
			wrong = append(wrong,
				fmt.Sprintf("the last commit does not come after %s (%s): git pull", what, object))
		}
	}
	after(r.branch+" of origin", r.origin[r.branch])
	after("the main branch of origin", r.origin["HEAD"])
	after(r.last, r.tags["refs/tags/"+r.last])
	return wrong, err
}

// newer: a module proxy keeps the first content of a version for ever, and users get the newest
// version. Git stores a tag like a file, so no tag can have the name of another tag's folder.
func newer(r *release) (wrong []string, err error) {
	all := maps.Clone(r.tags)
	maps.Copy(all, r.origin)
	var newest, last string
	for _, ref := range slices.Sorted(maps.Keys(all)) {
		tag, version := tagged(ref)
		if version == r.version {
			wrong = append(wrong, fmt.Sprintf("there is a tag %s already", tag))
		}
		if semver.Compare(version, last) > 0 {
			newest, last = tag, version
		}
	}
	for _, m := range r.released() {
		tag := m.tag(r.version)
		for ref := range all {
			if name := strings.TrimPrefix(ref, "refs/tags/"); name != ref &&
				(strings.HasPrefix(tag, name+"/") || strings.HasPrefix(name, tag+"/")) {
				wrong = append(wrong,
					fmt.Sprintf("git can't have the tag %s beside the tag %s", tag, name))
			}
		}
	}
	if semver.Compare(r.version, last) < 0 {
		wrong = append(wrong, fmt.Sprintf("%s was released already, and is newer", newest))
	}
	return wrong, nil
}

// told: CHANGELOG.md begins with a section that lists the changes of the version, under its name
// and date. There is no section "Unreleased", because its changes would be in the version without
// being listed under its name.
func told(r *release) (wrong []string, err error) {
	text, err := os.ReadFile(filepath.Join(r.dir, "CHANGELOG.md"))
	if err != nil {
		return nil, err
	}
	sections := regexp.MustCompile(`(?m)^## `).Split(string(text), -1)[1:]
	heading, changes, _ := strings.Cut(strings.Join(sections[:min(1, len(sections))], ""), "\n")
	date, named := strings.CutPrefix(heading, r.version+" (")
	switch at, err := time.Parse("2006-01-02)", strings.TrimSpace(date)); {
	case !named || err != nil || time.Until(at) > 24*time.Hour:
		wrong = append(wrong,
			fmt.Sprintf("CHANGELOG.md does not begin with %q and a date in brackets, but with %q",
				"## "+r.version, heading))
	case !regexp.MustCompile(`(?m)^\s*[^#\s]`).MatchString(changes):
		wrong = append(wrong, "CHANGELOG.md lists no changes of "+r.version)
	}
	for _, section := range sections[min(1, len(sections)):] {
		if name := strings.Fields(section); len(name) > 0 && name[0] == r.version {
			wrong = append(wrong, "CHANGELOG.md has more than one section of "+r.version)
		}
	}
	if regexp.MustCompile(`(?mi)^#+ *\[?unreleased\b|^\[?unreleased\b.*\n(-+|=+)[ \t\r]*$`).
		Match(text) {
		wrong = append(wrong, "CHANGELOG.md still has a section for what is unreleased")
	}
	return wrong, nil
}

// plain: go run module@version refuses a module with replace or exclude directives. A version that
// retracts itself is offered to nobody.
func plain(r *release) (wrong []string, err error) {
	for _, m := range r.released() {
		for _, d := range m.file.Replace {
			wrong = append(wrong, fmt.Sprintf("%s/go.mod replaces %s", m.dir, d.Old.Path))
		}
		for _, d := range m.file.Exclude {
			wrong = append(wrong, fmt.Sprintf("%s/go.mod excludes %s", m.dir, d.Mod))
		}
		for _, d := range m.file.Retract {
			if semver.Compare(d.Low, r.version) <= 0 && semver.Compare(r.version, d.High) <= 0 {
				wrong = append(wrong, fmt.Sprintf("%s/go.mod retracts %s", m.dir, r.version))
			}
		}
	}
	return wrong, nil
}

// prepared: each module requires this version of the other modules, with the hashes that they will
// have, and needs nothing else that only the workspace has.
func prepared(r *release) (wrong []string, err error) {
	c, err := clone(r.dir, "HEAD", filepath.Join(r.work, "prepared"))
	if err != nil {
		return nil, err
	}
	env, err := prepare(c, r.version, proxy(r.work))
	if err != nil {
		return nil, err
	}
	for _, name := range c.changed(r.dir) {
		wrong = append(wrong, name+" is not as prepare writes it")
	}
	return wrong, apart(c, r.version, proxy(r.work), env)
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
	before, err := clone(r.dir, "refs/tags/"+r.last, filepath.Join(r.work, "before"))
	if err != nil {
		return nil, err
	}
	after := r.released()
	for _, m := range before.modules {
		if r.tags["refs/tags/"+m.tag(r.last)] == "" {
			continue // it was in no release
		}
		i := slices.IndexFunc(after, func(now *mod) bool { return now.path == m.path })
		if i < 0 {
			wrong = append(wrong, fmt.Sprintf("%s is a module of %s, and is gone", m.path, r.last))
			continue
		}
		was, err := namesOf(before, m, filepath.Join(r.work, "was"))
		if err != nil {
			return wrong, err
		}
		is, err := namesOf(r.repo, after[i], filepath.Join(r.work, "is"))
		if err != nil {
			return wrong, err
		}
		lost, err := command(r.dir, []string{"GOWORK=off"}, "go", "run", apidiff, "-m",
			"-incompatible", was, is)
		if err != nil {
			return wrong, err
		}
		if lost = strings.TrimSpace(lost); lost != "" {
			wrong = append(wrong,
				fmt.Sprintf("%s has other names than in %s:\n%s", m.path, r.last, lost))
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
	work := fmt.Sprintf("go %s\n\nuse %s\n", strings.TrimSpace(goVersion),
		modfile.AutoQuote(r.where(m)))
	for _, other := range r.modules {
		if other.path != m.path {
			work += fmt.Sprintf("\nreplace %s => %s\n", other.path,
				modfile.AutoQuote(r.where(other)))
		}
	}
	if err := os.WriteFile(file+".work", []byte(work), 0o644); err != nil {
		return "", err
	}
	_, err = command(r.where(m), []string{"GOWORK=" + file + ".work"}, "go", "run", apidiff, "-m",
		"-w", file, m.path)
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
