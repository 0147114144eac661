package cacheguard_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// shownByExamples are the packages whose exported names are all to be seen in examples.
var shownByExamples = []string{
	"cacheguard", "cacheguard/redisstore", "cacheguard/memstore", "cacheguard/lock",
	"cacheguard/lockstore", "middleware", "cacheguard/guardtest", "cacheguard/statuspage",
	"cacheguard/slogobserver", "cacheguard/lock/redislock", "cacheguard/lock/redlock",
}

// setByUsers are the structs whose fields users set. Of other structs users read what they need.
var setByUsers = []string{"Options", "ScanOptions", "Entry", "Local", "Audit", "Fault"}

// calledByOthers are methods that fmt, errors and encoding/json call: what they do is in what the
// examples print.
var calledByOthers = []string{"String", "Error", "Unwrap", "Is", "MarshalJSON"}

// calledByCaches are types some of whose methods are those of an interface of the core. Caches call
// these; users call the rest.
var calledByCaches = []string{"Store", "Observer", "Page", "Recorder"}

const (
	forStores     = "only who writes a store needs it; package storetest says what a store must do"
	forInspection = "it is a part of what Inspect returns, and people read the text of that"
	forObservers  = "only who writes an observer needs it, and its doc comment lists the cases"
)

// withoutExample says why a name needs no example. A type stands for its members and its constants.
var withoutExample = map[string]string{
	"cacheguard.FillAnswer":       forStores,
	"cacheguard.FillAsk":          forStores,
	"cacheguard.Generations":      forStores,
	"cacheguard.Grant":            forStores,
	"cacheguard.Holding":          forStores,
	"cacheguard.ID":               forStores,
	"cacheguard.Key":              forStores,
	"cacheguard.LeaseAnswer":      forStores,
	"cacheguard.LeaseAsk":         forStores,
	"cacheguard.LeaseState":       forStores,
	"cacheguard.Message":          forStores,
	"cacheguard.MessageKind":      forStores,
	"cacheguard.Outcome":          forStores,
	"cacheguard.OutcomeKind":      forStores,
	"cacheguard.Permits":          forStores,
	"cacheguard.PermitsCache":     forStores,
	"cacheguard.Remnant":          forStores,
	"cacheguard.Reply":            forStores,
	"cacheguard.StepTimer":        forStores,
	"cacheguard.Store":            forStores,
	"cacheguard.Breakers":         forStores,
	"cacheguard.Deafness":         forStores,
	"cacheguard.Versions":         forStores,
	"cacheguard.Attacher":         forObservers,
	"cacheguard.Difference":       forObservers,
	"cacheguard.EventKind":        forObservers,
	"cacheguard.HitsUntold":       forObservers,
	"cacheguard.LoadTracer":       forObservers,
	"cacheguard.LoadUnder":        forObservers,
	"cacheguard.Reason":           forObservers,
	"cacheguard.StoreTrouble":     forObservers,
	"cacheguard.Story":            forObservers,
	"cacheguard.View":             forObservers,
	"cacheguard.Watcher":          forObservers,
	"cacheguard.Stats":            "Cache.Stats returns it",
	"cacheguard/guardtest.Answer": "Stampede returns it",
	"cacheguard/lock.All.Carry":   "Context calls it",

	"cacheguard/redisstore.InspectedLease":   forInspection,
	"cacheguard/redisstore.InspectedOutcome": forInspection,
	"cacheguard/redisstore.InspectedTag":     forInspection,
	"cacheguard/redisstore.InspectedValue":   forInspection,
	"cacheguard/redisstore.InspectedWaiters": forInspection,
	"cacheguard/redisstore.Inspection":       forInspection,
	"cacheguard/redisstore.Part":             "it is a line of the text that Diagnose returns",
	"cacheguard/redisstore.Scanned":          "Scan returns it, as its example shows",
	"cacheguard/redisstore.ScanBucket":       "it is a part of what Scan returns",
	"cacheguard/redisstore.State":            forInspection,
}

// Every exported name of the packages is used by the code of an example: each function, type,
// method, constant and variable, and each field of the structs in setByUsers. An example of any of
// the packages counts for a name of the core, an example of the same package for any other name.
func TestEveryNameIsInAnExample(t *testing.T) {
	missing, excused := map[string]bool{}, map[string]bool{}
	uses := map[string]exampleUses{}
	for _, p := range shownByExamples {
		uses[p] = usesIn(t, p)
	}
	interfaces := map[string]bool{} // the methods of the core's
	for _, p := range shownByExamples {
		for _, n := range exportedNames(t, p) {
			if n.ofInterface {
				interfaces[n.name] = true
			}
			switch {
			case n.usedIn(uses, p) || n.calledForUsers(interfaces):
			case withoutExample[n.full()] != "":
				excused[n.full()] = true
			case withoutExample[n.group()] != "":
				excused[n.group()] = true
			default:
				missing[n.full()] = true
			}
		}
	}
	for name := range withoutExample {
		if !excused[name] {
			t.Errorf("%s is in an example, or isn't exported: it needs no excuse", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("%s is in no example", name)
	}
}

// exportedName is a function, type, constant or variable (of is the type that go doc shows it with,
// or ""), or a member of a type.
type exportedName struct {
	pkg, of, name string
	member        bool
	ofInterface   bool     // a method of one of the core's
	shows         []string // the members of a type: one that is used shows the type, too
	makers        []string // the functions that return a type: they show it, too
}

// full is the name as people write it, after the path of its package.
func (n exportedName) full() string {
	if n.member {
		return n.pkg + "." + n.of + "." + n.name
	}
	return n.pkg + "." + n.name
}

// group is the type that the name belongs to.
func (n exportedName) group() string { return n.pkg + "." + n.of }

func (n exportedName) calledForUsers(interfaces map[string]bool) bool {
	return n.member && (slices.Contains(calledByOthers, n.name) ||
		n.pkg != "cacheguard" && slices.Contains(calledByCaches, n.of) && interfaces[n.name])
}

func (n exportedName) usedIn(uses map[string]exampleUses, p string) bool {
	if n.pkg == "cacheguard" {
		for _, u := range uses {
			if n.used(u) {
				return true
			}
		}
		return false
	}
	return n.used(uses[p])
}

func (n exportedName) used(u exampleUses) bool {
	if n.member {
		return u.literals[n.group()+"."+n.name] || u.members[n.name]
	}
	return u.names[n.full()] || slices.ContainsFunc(n.makers, func(m string) bool {
		return u.names[n.pkg+"."+m]
	}) || slices.ContainsFunc(n.shows, func(m string) bool {
		return u.literals[n.full()+"."+m] || u.members[m]
	})
}

// exportedNames are those of a package.
func exportedNames(t *testing.T, p string) (all []exportedName) {
	t.Helper()
	set := token.NewFileSet()
	shown, err := doc.NewFromFiles(set, parsed(t, set, p, func(name string) bool {
		return !strings.HasSuffix(name, "_test.go")
	}), module+"/"+p)
	if err != nil {
		t.Fatal(err)
	}
	add := func(of string, names ...string) {
		for _, name := range names {
			if ast.IsExported(name) {
				all = append(all, exportedName{pkg: p, of: of, name: name})
			}
		}
	}
	declared := func(of string, values []*doc.Value, funcs []*doc.Func) {
		for _, v := range values {
			add(of, v.Names...)
		}
		for _, f := range funcs {
			add(of, f.Name)
		}
	}
	declared("", append(shown.Consts, shown.Vars...), shown.Funcs)
	for _, of := range shown.Types {
		declared(of.Name, append(of.Consts, of.Vars...), of.Funcs)
		members := membersOf(of)
		typ := exportedName{pkg: p, of: of.Name, name: of.Name, shows: members}
		for _, f := range of.Funcs {
			typ.makers = append(typ.makers, f.Name)
		}
		all = append(all, typ)
		_, isInterface := of.Decl.Specs[0].(*ast.TypeSpec).Type.(*ast.InterfaceType)
		for _, m := range members {
			all = append(all, exportedName{
				pkg: p, of: of.Name, name: m, member: true,
				ofInterface: isInterface && p == "cacheguard",
			})
		}
	}
	return all
}

// membersOf are the exported methods of a type, and its fields if users set them.
func membersOf(of *doc.Type) (names []string) {
	for _, m := range of.Methods {
		names = append(names, m.Name)
	}
	var fields *ast.FieldList
	switch spec := of.Decl.Specs[0].(*ast.TypeSpec).Type.(type) {
	case *ast.StructType:
		if slices.Contains(setByUsers, of.Name) {
			fields = spec.Fields
		}
	case *ast.InterfaceType:
		fields = spec.Methods
	}
	if fields == nil {
		return names
	}
	for _, field := range fields.List {
		for _, name := range field.Names {
			if name.IsExported() {
				names = append(names, name.Name)
			}
		}
	}
	return names
}

// exampleUses are the names that the code of a package's examples has.
type exampleUses struct {
	names    map[string]bool // package.Name
	members  map[string]bool // what stands after the dot of anything but a package
	literals map[string]bool // package.Type.Field, where the literal names its type
}

func usesIn(t *testing.T, p string) exampleUses {
	t.Helper()
	u := exampleUses{map[string]bool{}, map[string]bool{}, map[string]bool{}}
	files := parsed(t, token.NewFileSet(), p, func(name string) bool {
		return strings.HasPrefix(name, "example_") || strings.HasSuffix(name, "_example_test.go")
	})
	if len(files) == 0 {
		t.Errorf("%s has no examples", p)
	}
	for _, file := range files {
		packages := importedHere(file)
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.SelectorExpr:
				if name := qualified(packages, node); name != "" {
					u.names[name] = true
				} else {
					u.members[node.Sel.Name] = true
				}
			case *ast.CompositeLit:
				for _, element := range node.Elts {
					if pair, ok := element.(*ast.KeyValueExpr); ok {
						if key, ok := pair.Key.(*ast.Ident); ok {
							u.literals[qualified(packages, node.Type)+"."+key.Name] = true
						}
					}
				}
			case *ast.FuncDecl: // an example's type that has the methods of an interface
				if node.Recv != nil {
					u.members[node.Name.Name] = true
				}
			}
			return true
		})
	}
	return u
}

// qualified is the name of a package of this module and what follows its dot, or "".
func qualified(packages map[string]string, expr ast.Expr) string {
	switch expr := expr.(type) {
	case *ast.IndexExpr:
		return qualified(packages, expr.X)
	case *ast.SelectorExpr:
		if of, ok := expr.X.(*ast.Ident); ok && packages[of.Name] != "" {
			return packages[of.Name] + "." + expr.Sel.Name
		}
	}
	return ""
}

// importedHere has the path of each imported package by its name in the file.
func importedHere(file *ast.File) map[string]string {
	packages := map[string]string{}
	for _, imported := range file.Imports {
		from, err := strconv.Unquote(imported.Path.Value)
		if err != nil {
			continue
		}
		name := path.Base(from)
		if imported.Name != nil {
			name = imported.Name.Name
		}
		packages[name] = strings.TrimPrefix(from, module+"/")
	}
	return packages
}

// parsed are the files of a package that are wanted.
func parsed(
	t *testing.T, set *token.FileSet, p string, want func(name string) bool,
) (files []*ast.File) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", p, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range paths {
		if !want(filepath.Base(at)) {
			continue
		}
		file, err := parser.ParseFile(set, at, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}
