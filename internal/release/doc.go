// Command release makes releases of this repository's modules, all with one version.
//
//	go run ./internal/release try               type-checks each module as its users get it, and counts what comes with it
//	go run ./internal/release types windows     type-checks all modules for other systems
//	go run ./internal/release prepare v0.1.0    writes the version into each go.mod and go.sum
//	go run ./internal/release check v0.1.0      says what is still wrong, or how the version is tagged and pushed
//	go run ./internal/release sbom v0.1.0 DIR   writes a bill of materials for each module, in CycloneDX
//
// Every step works on a clone of the last commit, in a temporary folder. Files that aren't
// committed, hooks and other settings of the working copy have no effect. Only prepare changes the
// working copy, at its end. If a step is interrupted, only temporary folders are left, and nothing
// has to be done; if prepare fails while it writes, git checkout restores the files.
//
// # Steps of a release
//
//  1. Rename the heading "Unreleased" in CHANGELOG.md to the version and the date:
//     "## v0.1.0 (2026-01-31)". If there is no such heading, write this section at the top, with
//     the changes. Commit this.
//  2. prepare the version. Commit what it changed.
//  3. .ci/run on a clean clone of that commit.
//  4. check the version. It prints the commands that tag the commit for each module, and push the
//     commit and the tags. The tag of the root module is pushed without the others, because GitHub
//     starts no workflow if more than three tags come at once.
//  5. Run these commands. If one fails, the others don't run.
//  6. The workflow "release" runs sbom. Attach its files to the release on the hosting site.
//
// Each push sends everything or nothing. If the first push fails, nothing is published: delete the
// new tags (git tag -d) and begin again. If the second push fails, repeat it. The commands as a
// whole can't be repeated, because git makes no tag twice.
//
// # What check refuses
//
//   - Files that aren't committed, and a commit without a branch.
//   - A remote "origin" that can't be read, or whose pushes go to more than one repository. A clone
//     that lacks commits, files or version tags of origin. A commit that doesn't come after the
//     branch and the main branch at origin, and after the last release.
//   - A version that isn't newer than all tags, here and at origin, of any module. Versions before
//     a release (v0.2.0-rc.1) count, too.
//   - A CHANGELOG.md that doesn't begin with the version, its date and a change, that has the
//     version twice, or that still has a section "Unreleased".
//   - Directives replace and exclude, and retract for the version itself.
//   - A go.mod, go.sum or go.work that differs from what prepare writes. A module whose packed
//     files don't type-check without the workspace, as its users get it.
//   - Modules that are gone, and exported names that are lost or changed, in a version with the
//     same minor number; from 1.0 on with the same major number. They are compared with the latest
//     release. If there is none, check says so.
//   - A module that doesn't pass go vet or its tests.
//
// checks in check.go is the list, and the tests have an example of each. The last three take
// minutes, so check begins them only if it has found nothing else. All steps with a version refuse
// a pseudo-version, a module whose path can't have the version (v2.0.0 needs /v2), and a module
// whose path doesn't fit its folder.
//
// check may find a dependency in the download cache of this machine, so it doesn't notice that
// others can't download it. Exported names are compared only for the system that check runs on.
// Folders named testdata, and those that begin with a dot, are not searched for modules.
//
// # Modules
//
// The root module has what users run. A package that needs more dependencies than most users want
// is a module of its own, below the root, with its own tag (cacheguard/promobserver/v0.1.0). In the
// repository go.work combines the modules. Outside of the repository each module requires the
// others by version, so a go.mod must have no replace or exclude directives: go run module@version
// refuses these.
//
// go.sum must have the hashes of modules that don't exist before the release. The hash of a module
// depends on its own files and, if it has no LICENSE, on the LICENSE of the root. It doesn't depend
// on modules below it. So prepare starts at the root module, packs each module as it will be
// published, and lets go mod tidy find it in a module proxy that is a folder. check does the same
// in another clone, where nothing may change.
package main
