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

// withoutExample says which exported names need no Example, and why.
var withoutExample = []struct {
	names *regexp.Regexp
	why   string
}{
	{regexp.MustCompile(`\.(Error|Unwrap|String|MarshalText|UnmarshalText)$`), "errors, fmt and encoding call it"},
	{regexp.MustCompile(`\.Inside$`), "Spillway's own packages call it"},
	{regexp.MustCompile(`^(prom|telemetry|notify)\.\w+\.Observe$`), "spillway.New calls it, for Config.Observers"},
	{regexp.MustCompile(`^wm\w+\.\w+\.(Publish|Subscribe|Close)$`), "Watermill's router calls it"},
	{regexp.MustCompile(`\.(InitializeTopics|SubscribeInitialize)$`), "the queue and the router call it at the start"},
	{regexp.MustCompile(`^wm\w+\.\w+\.(RedeliveryTime|ListWaiting)$`), "the stages and the receiver call it"},
	{regexp.MustCompile(`^wm\w+\.Subscriber\.Browse$`), "the dry run of redrive drain calls it"},
	{regexp.MustCompile(`^conformance\.`), "tests call it: docs/pubsub.md shows one"},
}

// Each exported type, function and method is in an Example, of its package or another one, or in withoutExample. A type
// is in an Example that has a value of it, or of a type that it is a part of.
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
						see(info.Uses[id], shown)
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

// show marks the named types of a value: its type, and the types of its fields, arguments and results.
func show(of types.Type, shown map[types.Object]bool) {
	switch of := of.(type) {
	case *types.Named:
		object := of.Origin().Obj()
		if shown[object] || object.Pkg() == nil || !strings.HasPrefix(object.Pkg().Path(), module) {
			return
		}
		shown[object] = true
		show(of.Underlying(), shown)
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
	case *types.Signature:
		show(of.Params(), shown)
		show(of.Results(), shown)
	case *types.Struct:
		for field := range of.Fields() {
			if field.Exported() {
				show(field.Type(), shown)
			}
		}
	case *types.Interface:
		for method := range of.Methods() {
			show(method.Signature(), shown)
		}
	}
}

// see marks what an Example names.
func see(object types.Object, shown map[types.Object]bool) {
	switch object := object.(type) {
	case *types.TypeName:
		show(object.Type(), shown)
	case *types.Func:
		shown[object.Origin()] = true
	}
}
