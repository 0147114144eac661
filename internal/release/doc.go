// Command release makes releases of this repository's modules, all with one version.
//
//	go run ./internal/release try               builds each module as its users will, and counts what they get with it
//	go run ./internal/release prepare v0.1.0    writes the version into each go.mod and go.sum
//	go run ./internal/release check v0.1.0      says what is still wrong, or how the version is tagged
//
// # Steps of a release
//
//  1. Give the section "Unreleased" of CHANGELOG.md the version and the date, as "## v0.1.0 (2026-01-31)".
//  2. prepare the version. Commit what it changed.
//  3. .ci/run on a clean clone of that commit.
//  4. check the version. It prints a git tag command for each module.
//  5. Run these, and push commit and tags together.
//
// # Modules
//
// The root module has what users run. Whatever pulls in more than they want is a module of its own,
// below the root, with its own tag (cacheguard/promobserver/v0.1.0). In the repository go.work puts
// them together. Outside of it each one asks for the others by version, so a go.mod has no replace
// directives: go run module@version refuses these.
//
// go.sum has to have the hashes of modules that don't exist before the release. They depend on the
// files of a module alone, and files of modules below it don't count. So prepare goes from the root
// module outwards, packs each module as it will be published, and lets go mod tidy find it in a
// proxy that is a folder. check does the same in a copy, and nothing may change.
package main
