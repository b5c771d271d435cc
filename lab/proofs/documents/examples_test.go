package documents_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

type exception struct {
	names *regexp.Regexp
	why   string
}

// withoutExample says which exported names need no Example, and why.
var withoutExample = []exception{
	{regexp.MustCompile(`\.(Error|Unwrap|String|MarshalText|UnmarshalText)$`), "errors, fmt and encoding call it"},
	{regexp.MustCompile(`^(prom|telemetry|notify)\.\w+\.Observe$`), "spillway.New calls it, for Config.Observers"},
	{regexp.MustCompile(`\.(InitializeTopics|SubscribeInitialize)$`), "the queue and the router call it at the start"},
	{regexp.MustCompile(`^wm\w+\.\w+\.(RedeliveryTime|ListWaiting)$`), "the stages and the receiver call it"},
	{regexp.MustCompile(`^wm\w+\.Subscriber\.Browse$`), "a drain calls it"},
	{regexp.MustCompile(`^sqlshare\.Store\.\w+$`), "the breaker calls it"},
	{regexp.MustCompile(`^conformance\.`), "tests call it: docs/pubsub.md shows one"},
}

// Each exported function and method is named in a file with Examples, of its package or another one, or in
// withoutExample.
func TestEveryNameHasAnExample(t *testing.T) {
	shown, declared, files := map[string]bool{}, map[string]bool{}, token.NewFileSet()
	tree(t, ".go", func(at, text string) {
		file := testkit.Must(parser.ParseFile(files, at, text, parser.SkipObjectResolution))
		if strings.HasSuffix(at, "_test.go") && slices.ContainsFunc(file.Decls, isExample) {
			ast.Inspect(file, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					shown[nameOf(s.X)+"."+s.Sel.Name], shown["."+s.Sel.Name] = true, true
				}
				return true
			})
		}
		internal := strings.HasPrefix(at, "examples/") || strings.HasPrefix(at, "lab/") || strings.Contains("/"+at, "/internal/")
		if strings.HasSuffix(at, "_test.go") || internal || file.Name.Name == "main" {
			return
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() {
				continue
			}
			name := file.Name.Name + "."
			if f.Recv != nil {
				of := strings.Trim(nameOfReceiver(f.Recv.List[0].Type), "*")
				if !ast.IsExported(of) {
					continue
				}
				name += of + "."
			}
			declared[name+f.Name.Name] = true
		}
	})
	used := make([]bool, len(withoutExample))
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		method := strings.Count(name, ".") == 2
		if shown[name] || method && shown[path.Ext(name)] {
			continue
		}
		at := slices.IndexFunc(withoutExample, func(e exception) bool { return e.names.MatchString(name) })
		if at < 0 {
			t.Errorf("%s is in no Example: add it to one, or to withoutExample with the reason", name)
			continue
		}
		used[at] = true
	}
	for i, reason := range withoutExample {
		testkit.Check(t, used[i], "withoutExample: %s: nothing needs it", reason.names)
	}
}

func isExample(d ast.Decl) bool {
	f, ok := d.(*ast.FuncDecl)
	return ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Example")
}

// nameOfReceiver is the type of a receiver.
func nameOfReceiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return nameOfReceiver(e.X)
	case *ast.IndexExpr:
		return nameOfReceiver(e.X)
	}
	return nameOf(e)
}
