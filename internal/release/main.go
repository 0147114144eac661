package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"golang.org/x/mod/semver"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	dir := flags.String("C", ".", "the repository")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), "usage: release [-C folder] try | types SYSTEM... | prepare VERSION | check VERSION | sbom VERSION FOLDER\n")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	r, err := open(*dir)
	if err != nil {
		return err
	}
	step, version := flags.Arg(0), flags.Arg(1)
	switch {
	case step == "try" && flags.NArg() == 1:
		return try(r, out)
	case step == "types" && flags.NArg() > 1:
		return types(r, flags.Args()[1:])
	case !(flags.NArg() == 2 && (step == "prepare" || step == "check")) && !(flags.NArg() == 3 && step == "sbom"):
		return fmt.Errorf("%q is not try, types SYSTEM..., prepare VERSION, check VERSION or sbom VERSION FOLDER", flags.Args())
	case semver.Canonical(version) != version:
		return fmt.Errorf("version %q is not like v0.1.0", version)
	case step == "check":
		return check(r, version, out)
	case step == "sbom":
		return bills(r, version, flags.Arg(2), out)
	}
	p, err := os.MkdirTemp("", "proxy")
	if err != nil {
		return err
	}
	defer os.RemoveAll(p)
	return prepare(r, version, proxy(p))
}
