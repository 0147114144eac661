package program

import (
	"bytes"
	"cmp"
	"context"
	_ "embed" // for resultsText
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"
)

// resultsText has a template for each measured section of bench/RESULTS.md, and a template "README
// x" for each part of README.md that has figures of section x.
//
//go:embed results.tmpl
var resultsText string

// resultSections are the measured sections, in the order of the page.
var resultSections = []string{
	"standard", "hits", "many", "cold", "fleets", "expiry", "outage", "locks", "http",
}

// resultPages are the pages with measured sections, and what the names of their templates begin
// with. A section is between the two comments of its name.
var resultPages = []struct{ file, prefix string }{{"bench/RESULTS.md", ""}, {"README.md", "README "}}

// results makes the measured sections of the pages again. It writes the pages after each section,
// so an interrupted run keeps the finished sections.
func results(ctx context.Context, args []string, stderr io.Writer) error {
	flags := newFlags("bench results", stderr)
	only := flags.String("only", strings.Join(resultSections, ","),
		"the sections that are measured; other sections keep their text")
	dir := flags.String("dir", ".",
		"the directory into which README.md and bench/RESULTS.md are written")
	short := flags.Bool("short", false,
		"every command is as short as possible: a test of this command, not a measurement")
	if err := parse(flags, args); err != nil {
		return err
	}
	names, err := chosen("only", *only, resultSections)
	if err != nil {
		return err
	}
	pages := make([]string, len(resultPages))
	for i, p := range resultPages {
		text, err := os.ReadFile(p.file)
		if err != nil {
			return fmt.Errorf("the command needs the repository's root as its directory: %w", err)
		}
		pages[i] = string(text)
	}
	server, err := openRedis(ctx, "")
	if err != nil {
		return err
	}
	about := server.about(ctx)
	server.close()
	for _, name := range names {
		m := &measuring{about: about, short: *short, of: map[string][]byte{}}
		m.output = func(line string) ([]byte, error) {
			fmt.Fprintln(stderr, line)
			return commandOutput(ctx, line, stderr)
		}
		for i, p := range resultPages {
			if pages[i], err = m.fill(pages[i], name, p.prefix); err != nil {
				return err
			}
			file := filepath.Join(*dir, p.file)
			if err := cmp.Or(os.MkdirAll(filepath.Dir(file), 0o777),
				os.WriteFile(file, []byte(pages[i]), 0o666)); err != nil {
				return err
			}
		}
	}
	return nil
}

// commandOutput returns what a command prints. A command of this program runs in this process.
// Other commands are children.
func commandOutput(ctx context.Context, line string, stderr io.Writer) ([]byte, error) {
	words := strings.Fields(strings.ReplaceAll(line, "'", ""))
	var out bytes.Buffer
	if strings.HasPrefix(line, "go run ./bench") {
		if run(ctx, Peers{}, words[3:], nil, &out, stderr) != 0 {
			return nil, errors.New("it failed")
		}
		return out.Bytes(), nil
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	endGroup(cmd)
	cmd.Stdout, cmd.Stderr = &out, stderr
	err := cmd.Run()
	if err != nil {
		_, _ = stderr.Write(out.Bytes()) // go test prints there why it failed
	}
	return out.Bytes(), err
}

// measuring makes the sections of one name. Each command runs once, even if two templates have it.
type measuring struct {
	about  about
	short  bool
	output func(line string) ([]byte, error)
	lines  []string // the commands so far
	of     map[string][]byte
}

// fill replaces a section of a page, if there is a template for it.
func (m *measuring) fill(page, name, prefix string) (string, error) {
	t, err := template.New("").Option("missingkey=error").Funcs(template.FuncMap{
		"standard": m.standard, "json": m.json, "gobench": m.gobench, "each": numbersIn,
		"median": median[float64], "least": slices.Min[[]float64], "most": slices.Max[[]float64],
		"div":     func(a, b float64) float64 { return a / b },
		"percent": func(part float64) float64 { return 100 * part },
		"sub":     func(a, b float64) float64 { return a - b },
		"ms":      func(ns float64) string { return fmt.Sprintf("%.2f", ns/1e6) },
		"time":    func(ns float64) time.Duration { return time.Duration(ns) },
		"nanos":   nanos, "millis": millis,
	}).Parse(resultsText)
	if err != nil || t.Lookup(prefix+name) == nil {
		return page, err
	}
	var text strings.Builder
	if err := t.ExecuteTemplate(&text, prefix+name, nil); err != nil {
		return page, err
	}
	begin, end := "<!--"+name+"-->\n", "<!--/"+name+"-->\n"
	before, rest, found := strings.Cut(page, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return page, fmt.Errorf("the page has no %sor no %s", begin, end)
	}
	from := ""
	if prefix == "" {
		from = fmt.Sprintf("`%s` (%v).\n\n", strings.Join(m.lines, "`, `"), m.about)
	}
	return before + begin + reflowed(from+text.String()) + end + after, nil
}

// get returns what a command prints.
func (m *measuring) get(line, short, always string) (_ []byte, err error) {
	if m.short {
		line += " " + short
	}
	if _, done := m.of[line]; !done {
		out, err := m.output(strings.TrimSpace(line + " " + always))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		m.of[line] = out
		m.lines = append(m.lines, line)
	}
	return m.of[line], nil
}

func (m *measuring) json(line, short string) (v map[string]any, err error) {
	out, err := m.get(line, short, "-json")
	if err != nil {
		return nil, err
	}
	return v, json.Unmarshal(out, &v)
}

func (m *measuring) gobench(flags string) (goBenchmarks, error) {
	out, err := m.get("go test -run '^$' "+flags, "-benchtime 1x -count 1 -short", "")
	return goBenchmarks(out), err
}

// numbersIn returns the numbers in a value of JSON that have this path below objects, in one list.
func numbersIn(v any, path string) (all []float64) {
	switch v := v.(type) {
	case float64:
		return []float64{v}
	case []any:
		return flat(v, func(v any) []float64 { return numbersIn(v, path) })
	case map[string]any:
		first, rest, _ := strings.Cut(path, ".")
		return numbersIn(v[first], rest)
	}
	return nil
}

// nanos formats a time in nanoseconds with two significant digits.
func nanos(ns float64) string {
	switch {
	case ns < 1e3:
		return factor(ns) + " ns"
	case ns < 1e6:
		return factor(ns/1e3) + " µs"
	}
	return factor(ns/1e6) + " ms"
}

// millis formats times without the load, in ms with two significant digits: the median, and in
// brackets the least and the most.
func millis(times []float64, load float64) string {
	in := func(ns float64) string { return factor((ns - load) / 1e6) }
	if len(times) < 2 {
		return in(median(times))
	}
	return fmt.Sprintf("%s (%s to %s)", in(median(times)), in(slices.Min(times)),
		in(slices.Max(times)))
}

// reflowed wraps paragraphs and items, and leaves tables and single empty lines between them.
func reflowed(text string) string {
	var out strings.Builder
	bullet, words := "", ""
	flush := func() {
		if words != "" {
			out.WriteString(wrapped(bullet, words))
		}
		bullet, words = "", ""
	}
	for line := range strings.Lines(text + "\n\n") {
		line = strings.TrimSpace(line)
		item, isItem := strings.CutPrefix(line, "- ")
		switch {
		case strings.HasPrefix(line, "|"):
			flush()
			out.WriteString(line + "\n")
		case isItem:
			flush()
			bullet, words = "- ", item
		case line != "":
			words += " " + line
		default:
			flush()
			if !strings.HasSuffix(out.String(), "\n\n") {
				out.WriteString("\n")
			}
		}
	}
	return "\n" + strings.TrimLeft(out.String(), "\n")
}
