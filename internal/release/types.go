package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	gotypes "go/types"
	"io"
	"path/filepath"
	"strings"
	"sync"
)

// types type-checks the packages of all modules, and their tests, for other systems than this one.
func types(r *repo, systems []string) error {
	errs := make([]error, len(systems))
	var wg sync.WaitGroup
	for i, system := range systems {
		wg.Go(func() {
			if err := typeCheck(r.dir, []string{"GOOS=" + system, "GOARCH=amd64"},
				"work"); err != nil {
				errs[i] = fmt.Errorf("for %s:\n%w", system, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// A listed is a package as go list prints it.
type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	// Not used, but go list looks for these files only if it is to print them.
	EmbedFiles []string
	ImportMap  map[string]string // what an import stands for, if it isn't the path itself
	DepOnly    bool              // a package that was asked for imports it
	Module     *struct{ GoVersion string }
	Error      *struct{ Err string }
}

// typeCheck type-checks packages and their tests, without cgo. It reads the source of everything
// that they import. go vet would compile all of this, which takes far longer for another system, or
// for a module with another version.
func typeCheck(dir string, env []string, packages string) error {
	list := newCommand(dir, append(env, "CGO_ENABLED=0"), "go", "list", "-e", "-deps", "-test",
		"-json=ImportPath,Dir,GoFiles,EmbedFiles,ImportMap,DepOnly,Module,Error", packages)
	var said strings.Builder
	list.Stderr = &said
	out, err := list.StdoutPipe()
	if err != nil {
		return err
	}
	if err := list.Start(); err != nil {
		return err
	}
	c := checker{
		checked: map[string]*gotypes.Package{"unsafe": gotypes.Unsafe}, wrong: map[string]bool{},
	}
	for d := json.NewDecoder(out); ; {
		var p listed
		if err = d.Decode(&p); err != nil {
			break
		}
		c.check(p) // what it imports has come before it
	}
	if err == io.EOF {
		err = nil
	}
	if failed := list.Wait(); failed != nil {
		err = errors.Join(err, fmt.Errorf("go list: %w\n%s", failed, said.String()))
	}
	if c.asked == 0 {
		c.errs = append(c.errs, errors.New("there are no packages"))
	}
	return errors.Join(append(c.errs, err)...)
}

// checker checks packages in the order of their imports.
type checker struct {
	checked map[string]*gotypes.Package
	asked   int // packages that were asked for
	errs    []error
	// The texts of errs, so that no error is reported twice: a package that has tests is checked a
	// second time together with its tests.
	wrong map[string]bool
}

func (c *checker) fail(err error) {
	if !c.wrong[err.Error()] {
		c.wrong[err.Error()] = true
		c.errs = append(c.errs, err)
	}
}

func (c *checker) check(p listed) {
	if p.Error != nil {
		c.fail(fmt.Errorf("%s: %s", p.ImportPath, strings.TrimSpace(p.Error.Err)))
	}
	// go test generates the packages whose names end in .test.
	if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") {
		return
	}
	if !p.DepOnly {
		c.asked++
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil,
			parser.SkipObjectResolution)
		if err != nil {
			c.fail(err)
			continue
		}
		files = append(files, file)
	}
	config := gotypes.Config{
		Importer: importer(func(path string) (*gotypes.Package, error) {
			if dep := c.checked[cmp.Or(p.ImportMap[path], path)]; dep != nil {
				return dep, nil
			}
			return nil, fmt.Errorf("there is no package %s", path)
		}),
		Sizes:            gotypes.SizesFor("gc", "amd64"),
		IgnoreFuncBodies: p.DepOnly,
		Error:            c.fail,
	}
	if p.Module != nil && p.Module.GoVersion != "" {
		config.GoVersion = "go" + p.Module.GoVersion
	}
	path, _, _ := strings.Cut(p.ImportPath, " ") // "a [b.test]" is a as the tests of b have it
	c.checked[p.ImportPath], _ = config.Check(path, fset, files, nil)
}

type importer func(path string) (*gotypes.Package, error)

func (i importer) Import(path string) (*gotypes.Package, error) { return i(path) }
