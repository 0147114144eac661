package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

func main() {
	// Commands run in several folders, so a relative name would be a different folder for each.
	if tmp, err := filepath.Abs(os.TempDir()); err == nil {
		os.Setenv("TMPDIR", tmp)
	}
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	dir := flags.String("C", ".", "a folder of the repository")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(),
			"usage: release [-C folder] try | types SYSTEM... | prepare VERSION | check VERSION | sbom VERSION FOLDER\n")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	step, version := flags.Arg(0), flags.Arg(1)
	unversioned := step == "try" && flags.NArg() == 1 || step == "types" && flags.NArg() > 1
	switch {
	case unversioned:
	case !(flags.NArg() == 2 && (step == "prepare" || step == "check")) &&
		!(flags.NArg() == 3 && step == "sbom"):
		return fmt.Errorf(
			"%q is not try, types SYSTEM..., prepare VERSION, check VERSION or sbom VERSION FOLDER",
			flags.Args())
	case semver.Canonical(version) != version || module.IsPseudoVersion(version):
		return fmt.Errorf("version %q is not like v0.1.0", version)
	}
	here, err := workingCopy(*dir)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	r, err := clone(here, "HEAD", filepath.Join(work, "commit"))
	if err != nil {
		return err
	}
	if !unversioned {
		if err := r.fits(version); err != nil {
			return err
		}
	}
	switch step {
	case "try":
		return try(r, work, out)
	case "types":
		return types(r, flags.Args()[1:])
	case "check":
		return check(r, here, version, work, out)
	case "sbom":
		return bills(r, version, flags.Arg(2), work, out)
	}
	return write(r, here, version, proxy(work))
}
