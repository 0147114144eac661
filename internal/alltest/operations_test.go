package alltest

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/cacheguard/cacheguard/cacheguard"
	"github.com/cacheguard/cacheguard/cacheguard/otelobserver"
	"github.com/cacheguard/cacheguard/cacheguard/promobserver"
	"github.com/cacheguard/cacheguard/internal/childproc"
)

const operationsPage = "../../docs/operations.md"

// The operations page has every line of the log with its level, and every cause. It has no line
// that is not in the code. Every line names an existing heading, and no line has a key.
func TestOperationsLines(t *testing.T) {
	page := strings.Join(strings.Fields(read(t, operationsPage)), " ")
	code := newLogLines(t)
	onPage := map[string]bool{}
	for _, m := range regexp.MustCompile("`((?:\\w+): [^`]+)` \\((\\w+)\\)").
		FindAllStringSubmatch(page, -1) {
		onPage[m[1]+" ("+m[2]+")"] = true
	}
	for line := range code.lines {
		if !onPage[line] {
			t.Errorf("the page doesn't have %q", line)
		}
	}
	for line := range onPage {
		if !code.lines[line] {
			t.Errorf("the page has %q, and the code has not", line)
		}
	}
	if len(code.lines) < 30 || len(code.causes) < 20 {
		t.Errorf("this test sees no more than %d lines and %d causes", len(code.lines),
			len(code.causes))
	}
	for _, cause := range code.causes {
		if !strings.Contains(page, cause) {
			t.Errorf("the page doesn't have the cause %q", cause)
		}
	}
	there := headings(t)
	for _, see := range code.sees {
		if !there[see] {
			t.Errorf("a line says see #%s, and there is no such heading", see)
		}
	}
	for _, m := range regexp.MustCompile(`\]\(#([^)]*)\)`).FindAllStringSubmatch(page, -1) {
		if !there[m[1]] {
			t.Errorf("the page links to #%s, and there is no such heading", m[1])
		}
	}
	if n := strings.Count(read(t, operationsPage), "\n"); n > 300 {
		t.Errorf("the page has %d lines, at most 300 are its size", n)
	}
}

// It has every metric that is exported, by both names, and no other. The documentation of each
// observer names its metrics, too.
func TestOperationsMetrics(t *testing.T) {
	page := read(t, operationsPage)
	for what, c := range map[string]struct {
		written string
		there   map[string]bool
		doc     string // the observer's package comment, which names them, too
	}{
		"Prometheus":    {"`(cacheguard_[a-z_]+)[`{]", prometheusNames(t), "promobserver"},
		"OpenTelemetry": {"`(cacheguard\\.[a-z_.]+)`", otelNames(t), "otelobserver"},
	} {
		doc := read(t, "../../cacheguard/"+c.doc+"/doc.go")
		onPage := map[string]bool{}
		for _, m := range regexp.MustCompile(c.written).FindAllStringSubmatch(page, -1) {
			onPage[m[1]] = true
			if !c.there[m[1]] {
				t.Errorf("the page has %s, which %s is not told", m[1], what)
			}
		}
		for name := range c.there {
			if !onPage[name] {
				t.Errorf("%s is told %s, which is not on the page", what, name)
			}
			if !regexp.MustCompile(regexp.QuoteMeta(name) + `[^\w.]`).MatchString(doc) {
				t.Errorf("the documentation of %s doesn't name %s", c.doc, name)
			}
		}
	}
}

// The alerts are those of the page, and of metrics that there are; and Prometheus takes them, as
// far as promtool is at hand.
func TestOperationsAlerts(t *testing.T) {
	const file = "../../docs/alerts.yml"
	rules, page := read(t, file), read(t, operationsPage)
	names, there := prometheusNames(t), headings(t)
	metrics := regexp.MustCompile(`\bcacheguard_[a-z_]+`).FindAllString(rules, -1)
	for _, name := range metrics {
		base := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")
		if !names[name] && !names[base] {
			t.Errorf("a rule has %s, which is not exported", name)
		}
	}
	var alerts []string
	for _, m := range regexp.MustCompile(`(?m)^ *- alert: (\w+)$`).FindAllStringSubmatch(rules,
		-1) {
		alerts = append(alerts, m[1])
		if !strings.Contains(page, "`"+m[1]+"`") {
			t.Errorf("the page doesn't have the alert %s", m[1])
		}
	}
	for _, m := range regexp.MustCompile("`(Cacheguard\\w+)`").FindAllStringSubmatch(page, -1) {
		if !slices.Contains(alerts, m[1]) {
			t.Errorf("the page has the alert %s, which is no rule", m[1])
		}
	}
	sees := regexp.MustCompile(`(?m)^ *see: docs/operations\.md#(\S+)$`).
		FindAllStringSubmatch(rules, -1)
	for _, m := range sees {
		if !there[m[1]] {
			t.Errorf("a rule says see #%s, and there is no such heading", m[1])
		}
	}
	if len(alerts) == 0 || len(sees) != len(alerts) || len(metrics) < len(alerts) {
		t.Errorf("%d alerts of %d metrics say %d times where to read on", len(alerts), len(metrics),
			len(sees))
	}
	promtool, err := exec.LookPath("promtool")
	switch {
	case err == nil:
	case childproc.Full():
		t.Fatal(err)
	default:
		t.Skip("there is no promtool to check the rules with")
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules",
		file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// headings are the anchors of the page, as Markdown is shown.
func headings(t *testing.T) map[string]bool {
	there := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^##+ (.*)$`).
		FindAllStringSubmatch(read(t, operationsPage), -1) {
		plain := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(m[1]), "")
		there[strings.ReplaceAll(plain, " ", "-")] = true
	}
	return there
}

func prometheusNames(t *testing.T) map[string]bool {
	t.Helper()
	o, err := promobserver.New(promobserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o.Attach("a", func() cacheguard.Stats { return cacheguard.Stats{Compared: 1} })
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(o)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range families {
		names[f.GetName()] = true
	}
	return names
}

func otelNames(t *testing.T) map[string]bool {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	o, err := otelobserver.New(otelobserver.Options{
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
	})
	if err != nil {
		t.Fatal(err)
	}
	o.Attach("a", func() cacheguard.Stats { return cacheguard.Stats{Compared: 1} })
	for kind := cacheguard.EventKind(1); !strings.HasPrefix(kind.String(), "EventKind("); kind++ {
		o.Observe(t.Context(), cacheguard.Event{Kind: kind, Cache: "a", Took: 1})
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			names[m.Name] = true
		}
	}
	return names
}

// logLines returns the lines that the code can log. They are lines of package report.
type logLines struct {
	t      *testing.T
	consts map[string]string // of the package that is looked at
	lines  map[string]bool   // with their levels
	sees   []string
	causes []string
}

func newLogLines(t *testing.T) *logLines {
	t.Helper()
	l := &logLines{t: t, lines: map[string]bool{}}
	packages := map[string][]*ast.File{}
	files := token.NewFileSet()
	for _, root := range []string{"../../cacheguard", "../../middleware", "../../internal"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") ||
				strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			packages[filepath.Dir(path)] = append(packages[filepath.Dir(path)], f)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, all := range packages {
		l.consts = map[string]string{}
		for _, f := range all {
			l.eachConst(f)
		}
		for _, f := range all {
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CompositeLit:
					l.literal(n)
				case *ast.CallExpr:
					l.call(n)
				case *ast.FuncDecl:
					l.function(n)
				case *ast.ValueSpec:
					l.table(n)
				}
				return true
			})
		}
	}
	return l
}

func (l *logLines) eachConst(f *ast.File) {
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
			for _, s := range g.Specs {
				s := s.(*ast.ValueSpec)
				for i, v := range s.Values {
					if text, err := l.text(v); err == nil {
						l.consts[s.Names[i].Name] = text
					}
				}
			}
		}
	}
}

var errNoText = errors.New("no constant text")

// text is what a constant expression says.
func (l *logLines) text(e ast.Expr) (string, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			return strconv.Unquote(e.Value)
		}
	case *ast.Ident:
		if text, known := l.consts[e.Name]; known {
			return text, nil
		}
	case *ast.BinaryExpr:
		x, errX := l.text(e.X)
		y, errY := l.text(e.Y)
		return x + y, errors.Join(errX, errY)
	}
	return "", errNoText
}

// literal takes a report.Line, or the cause of a Trouble.
func (l *logLines) literal(n *ast.CompositeLit) {
	if name, ok := n.Type.(*ast.Ident); (ok && name.Name == "Trouble" ||
		isSelector(n.Type, "redislink", "Trouble")) && len(n.Elts) == 3 {
		if kv, ok := n.Elts[1].(*ast.KeyValueExpr); ok {
			l.cause(kv.Value)
		} else {
			l.cause(n.Elts[1])
		}
	}
	if !isSelector(n.Type, "report", "Line") {
		return
	}
	field := map[string]ast.Expr{}
	for _, e := range n.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			l.t.Errorf("a report.Line doesn't name its fields")
			return
		}
		field[kv.Key.(*ast.Ident).Name] = kv.Value
	}
	text, err := l.text(field["Text"])
	see, errSee := l.text(field["See"])
	level, ok := field["Level"].(*ast.SelectorExpr)
	if err != nil || errSee != nil || !ok {
		l.t.Errorf("a report.Line is not constant: %q", text)
		return
	}
	name := strings.ToUpper(strings.TrimPrefix(level.Sel.Name, "Level"))
	if name != "INFO" {
		if means, err := l.text(field["Means"]); err != nil || means == "" {
			l.t.Errorf("the line %q doesn't say what it means", text)
		}
	}
	l.lines[fmt.Sprintf("%s (%s)", text, name)] = true
	l.sees = append(l.sees, see)
}

// call sees that nothing is logged without a report.Line, and no key with one.
func (l *logLines) call(n *ast.CallExpr) {
	f, ok := n.Fun.(*ast.SelectorExpr)
	if !ok || len(n.Args) == 0 {
		return
	}
	if f.Sel.Name == "Log" {
		for _, arg := range n.Args {
			if text, _ := l.text(arg); text == "key" {
				l.t.Errorf("a line has a key")
			}
		}
	}
	level := strings.TrimSuffix(f.Sel.Name, "Context")
	if !slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, level) {
		return
	}
	for _, arg := range n.Args[:min(2, len(n.Args))] {
		if text, err := l.text(arg); err == nil && regexp.MustCompile(`^\w+: `).MatchString(text) {
			l.t.Errorf("%q is logged past package report", text)
		}
	}
}

// function takes the causes that a function of redislink returns.
func (l *logLines) function(n *ast.FuncDecl) {
	if !strings.HasPrefix(n.Name.Name, "causeOf") {
		return
	}
	ast.Inspect(n.Body, func(n ast.Node) bool {
		if r, ok := n.(*ast.ReturnStmt); ok {
			l.cause(r.Results[0])
		}
		return true
	})
}

// table takes those of redislink's table of answers.
func (l *logLines) table(n *ast.ValueSpec) {
	if n.Names[0].Name != "answers" || len(n.Values) == 0 {
		return
	}
	if all, ok := n.Values[0].(*ast.CompositeLit); ok {
		for _, e := range all.Elts {
			if row, ok := e.(*ast.CompositeLit); ok && len(row.Elts) == 2 {
				l.cause(row.Elts[1])
			}
		}
	}
}

func (l *logLines) cause(e ast.Expr) {
	if text, err := l.text(e); err == nil {
		l.causes = append(l.causes, text)
	}
}

func isSelector(e ast.Expr, pkg, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
