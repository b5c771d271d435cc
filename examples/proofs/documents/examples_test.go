package documents_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// withoutExample says why exported types, functions and methods need no Example.
var withoutExample = []struct {
	why   string
	names *regexp.Regexp
}{}

// Each exported type, function and method is in an Example, of its package or another one, or in withoutExample. A type
// is in an Example that has a value of it.
func TestEveryNameHasAnExample(t *testing.T) {
	public := testkit.Must(exec.Command("go", "list", "./...", "./observe/prom/...", "./observe/telemetry/...").Output())
	tests := map[string][]*ast.File{} // of a folder's external tests
	files, from, shown := token.NewFileSet(), []string{}, map[types.Object]bool{}
	tree(t, "_test.go", func(at, text string) {
		file := testkit.Must(parser.ParseFile(files, at, text, parser.SkipObjectResolution))
		if strings.HasSuffix(file.Name.Name, "_test") {
			tests[path.Dir(at)] = append(tests[path.Dir(at)], file)
		}
	})
	for folder, of := range tests {
		if !slices.ContainsFunc(of, hasExample) {
			delete(tests, folder)
			continue
		}
		for _, file := range of {
			for _, spec := range file.Imports {
				from = append(from, strings.Trim(spec.Path.Value, `"`))
			}
		}
	}
	imports := exported(t, append(from, strings.Fields(string(public))...)...)
	for folder, of := range tests {
		checker := types.Config{Importer: imports, Error: func(error) {}} // what only the package's own tests export is missing
		info := types.Info{Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}
		_, _ = checker.Check(folder, files, of, &info)
		for _, file := range of {
			if hasExample(file) {
				ast.Inspect(file, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok && info.Uses[id] != nil {
						shown[origin(info.Uses[id])] = true
					}
					if value, ok := n.(ast.Expr); ok {
						show(info.TypeOf(value), shown)
					}
					return true
				})
			}
		}
	}
	used := make([]bool, len(withoutExample))
	for in := range strings.FieldsSeq(string(public)) {
		if strings.Contains(in+"/", "/internal/") || strings.Contains(in+"/", "/examples/") {
			continue
		}
		of := testkit.Must(imports.Import(in))
		if of.Name() == "main" {
			continue
		}
		need := func(name string, object types.Object) {
			if !object.Exported() || shown[object] {
				return
			}
			name = of.Name() + "." + name
			for i, reason := range withoutExample {
				if reason.names.MatchString(name) {
					used[i] = true
					return
				}
			}
			t.Errorf("%s is in no Example: add it to one, or to withoutExample with the reason", name)
		}
		for _, name := range of.Scope().Names() {
			switch object := of.Scope().Lookup(name).(type) {
			case *types.Func:
				need(name, object)
			case *types.TypeName:
				need(name, object)
				if named, ok := object.Type().(*types.Named); ok && object.Exported() {
					for method := range named.Methods() {
						need(name+"."+method.Name(), method)
					}
				}
			}
		}
	}
	for i, reason := range withoutExample {
		testkit.Check(t, used[i], "withoutExample: %s: nothing needs it", reason.names)
	}
}

func hasExample(file *ast.File) bool {
	return slices.ContainsFunc(file.Decls, func(d ast.Decl) bool {
		f, ok := d.(*ast.FuncDecl)
		return ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Example")
	})
}

// show marks the named types that a value's type has.
func show(of types.Type, shown map[types.Object]bool) {
	switch of := of.(type) {
	case *types.Named:
		shown[of.Origin().Obj()] = true
	case *types.Pointer:
		show(of.Elem(), shown)
	case *types.Slice:
		show(of.Elem(), shown)
	case *types.Map:
		show(of.Key(), shown)
		show(of.Elem(), shown)
	case *types.Tuple:
		for v := range of.Variables() {
			show(v.Type(), shown)
		}
	}
}

// origin is the declaration of what may be an instance of it.
func origin(object types.Object) types.Object {
	if f, ok := object.(*types.Func); ok {
		return f.Origin()
	}
	return object
}
