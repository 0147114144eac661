package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// cyclonedx writes software bills of materials (https://cyclonedx.org).
const cyclonedx = "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0"

// bills writes a bill of materials for each released module as it will be with the version. The
// modules need not be published yet.
func bills(r *repo, version, dir, work string, out io.Writer) error {
	env, err := prepare(r, version, proxy(work))
	if err != nil {
		return err
	}
	// cyclonedx-gomod would make a version of the clone's commit.
	if err := os.RemoveAll(filepath.Join(r.dir, ".git")); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, m := range r.released() {
		raw := filepath.Join(work, "bill.json")
		if _, err := command(r.where(m), env, "go", "run", cyclonedx, "mod", "-json", "-licenses",
			"-noserial", "-notimestamp",
			"-type", "library", "-output", raw); err != nil {
			return err
		}
		text, err := os.ReadFile(raw)
		if err != nil {
			return err
		}
		if text, err = versioned(text, m.path, version); err != nil {
			return fmt.Errorf("%s: %w", m.path, err)
		}
		name := filepath.Join(dir, strings.ReplaceAll(m.path, "/", "_")+".cdx.json")
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
		fmt.Fprintln(out, name)
	}
	return nil
}

// versioned writes the version of a module into the module's bill. cyclonedx-gomod doesn't know
// this version, because it has no tag yet.
func versioned(bill []byte, path, version string) ([]byte, error) {
	named := strings.ReplaceAll(string(bill), `"pkg:golang/`+path+`?`,
		`"pkg:golang/`+path+`@`+version+`?`)
	var all map[string]any
	if err := json.Unmarshal([]byte(named), &all); err != nil {
		return nil, err
	}
	about, _ := all["metadata"].(map[string]any)
	module, _ := about["component"].(map[string]any)
	if module["name"] != path {
		return nil, errors.New("the bill is about another module")
	}
	module["version"] = version
	return json.MarshalIndent(all, "", "  ")
}
