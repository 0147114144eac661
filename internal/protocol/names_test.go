package protocol

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"strings"
	"sync"
)

// names has, for each type of this package, the names of its constants in the order of their
// declarations.
var names = sync.OnceValue(func() map[string][]string {
	all := map[string][]string{}
	for _, file := range []string{"miss.go", "slot.go"} {
		f, err := parser.ParseFile(gotoken.NewFileSet(), file, nil, 0)
		if err != nil {
			panic(err)
		}
		for _, d := range f.Decls {
			block, ok := d.(*ast.GenDecl)
			if !ok || block.Tok != gotoken.CONST {
				continue
			}
			of := ""
			for _, s := range block.Specs {
				v := s.(*ast.ValueSpec)
				if typ, ok := v.Type.(*ast.Ident); ok {
					of = typ.Name
				}
				all[of] = append(all[of], v.Names[0].Name)
			}
		}
	}
	return all
})

func (s State) String() string   { return names()["State"][s] }
func (k Kind) String() string    { return names()["Kind"][k] }
func (u Use) String() string     { return names()["Use"][u] }
func (l Left) String() string    { return names()["Left"][l] }
func (l Landing) String() string { return names()["Landing"][l] }
func (t Tells) String() string   { return names()["Tells"][t] }

func (d Do) String() string {
	var all []string
	for i, name := range names()["Do"] {
		if d&(1<<i) != 0 {
			all = append(all, name)
		}
	}
	return strings.Join(all, " ")
}
