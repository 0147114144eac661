// Command release makes releases of this repository's modules, all with one version.
//
//	go run ./internal/release try               type-checks each module as its users get it, and counts what comes with it
//	go run ./internal/release types windows     type-checks all modules for other systems
//	go run ./internal/release prepare v0.1.0    writes the version into each go.mod and go.sum
//	go run ./internal/release check v0.1.0      says what is still wrong, or how the version is tagged and pushed
//	go run ./internal/release sbom v0.1.0 DIR   writes a bill of materials for each module, in CycloneDX
//
// # Steps of a release
//
//  1. Give the section "Unreleased" of CHANGELOG.md (if there is one) the version and the date, as
//     "## v0.1.0 (2026-01-31)".
//  2. prepare the version. Commit what it changed.
//  3. .ci/run on a clean clone of that commit.
//  4. check the version. It prints the commands that tag each module and push the tags. The tag of
//     the root module is pushed alone, because GitHub starts no workflow if more than three tags
//     come at once.
//  5. Run these commands.
//  6. The workflow "release" runs sbom. Attach its files to the release on the hosting site.
//
// # What check refuses
//
// Files that aren't committed, and a commit without a branch. A tag that is there, or a newer
// release. A CHANGELOG.md that doesn't begin with the version, its date and a change, or that still
// has a section "Unreleased". Replace directives. A go.mod, go.sum or go.work that differs from what
// prepare writes. Exported names that are lost or changed in a version with the same minor number,
// from 1.0 on with the same major number (they are compared with the latest tag; if there is none,
// check says so). A module that doesn't pass go vet or its tests. checks in check.go is the list,
// and TestCheckRefuses has an example of each.
//
// # Modules
//
// The root module has what users run. A package that needs more dependencies than most users want
// is a module of its own, below the root, with its own tag (cacheguard/promobserver/v0.1.0). In the
// repository go.work combines the modules. Outside of the repository each module requires the
// others by version, so a go.mod must have no replace directives: go run module@version refuses
// these.
//
// go.sum must have the hashes of modules that don't exist before the release. The hash of a module
// depends only on its own files, and not on those of modules below it. So prepare starts at the
// root module, packs each module as it will be published, and lets go mod tidy find it in a module
// proxy that is a folder. check does the same in a copy, where nothing may change.
package main
