package documents_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strconv"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature O5: each log line of the library is an event whose fields have the common names, and each event has a line.
func TestLogLines(t *testing.T) {
	p := logLines{t, fieldNames(t), map[string]int{}}
	tree(t, ".go", func(at, text string) {
		if strings.HasSuffix(at, "_test.go") || notLibrary(at) {
			return
		}
		file := testkit.Must(parser.ParseFile(token.NewFileSet(), at, text, 0))
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				p.named[path.Dir(at)+"."+n.Name]++
			case *ast.SelectorExpr:
				if isPackage(n.X, "logging") {
					p.named["internal/logging."+n.Sel.Name]++
				}
			case *ast.CallExpr:
				p.call(at, n)
			}
			return true
		})
	})
	for _, e := range events(t) {
		testkit.Check(t, p.named[e.variable] >= 2, "no line is written of %s: remove the event", e.variable)
	}
}

// writer is the file of the package of log lines that declares events, and writes one.
const writer = "internal/logging/event.go"

// notLibrary reports whether a file's log lines are not the library's.
func notLibrary(at string) bool {
	if at == writer {
		return false
	}
	for _, dir := range []string{"examples/", "lab/", "conformance/", "cmd/", "internal/logging/", "internal/testing/"} {
		if strings.HasPrefix(at, dir) {
			return true
		}
	}
	return at == "pubsub/wmamqp/closing.go" // a logger that passes lines of watermill-amqp on
}

// logLines are what the library writes.
type logLines struct {
	*testing.T
	names map[string]string // of fields, by their constants
	named map[string]int    // how often, by folder and name: once where an event is declared
}

func (p logLines) call(at string, call *ast.CallExpr) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	switch name, n := method.Sel.Name, len(call.Args); {
	case name == "Error" && n == 3, (name == "Info" || name == "Debug" || name == "Trace") && n == 2:
		testkit.Check(p, isPackage(method.X, "slog"), "%s writes a log line with %s. Declare an event, "+
			"write it with event<Name>.Write(logger, err, logging.Fields{...}), and run TestEventsPage with -update", at, name)
	case name == "Write" && n == 3:
		fields, literal := call.Args[2].(*ast.CompositeLit)
		if !literal || !strings.HasPrefix(nameOf(method.X), "event") && !isSelected(method.X, "logging") {
			return
		}
		for _, e := range fields.Elts {
			p.key(e.(*ast.KeyValueExpr).Key)
		}
	}
}

func (p logLines) key(e ast.Expr) {
	if literal, ok := e.(*ast.BasicLit); ok {
		key, _ := strconv.Unquote(literal.Value)
		for constant, name := range p.names {
			testkit.Check(p, name != key, "a field is named %q: name it logging.%s", key, constant)
		}
	}
}

func isPackage(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

// isSelected reports whether e is a name of a package.
func isSelected(e ast.Expr, name string) bool {
	selected, ok := e.(*ast.SelectorExpr)
	return ok && isPackage(selected.X, name)
}

func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// fieldNames returns the names of fields by their constants.
func fieldNames(t *testing.T) map[string]string {
	names := map[string]string{}
	file := testkit.Must(parser.ParseFile(token.NewFileSet(), "internal/logging/names.go", nil, 0))
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
			if text, ok := spec.Values[0].(*ast.BasicLit); ok {
				names[spec.Names[0].Name], _ = strconv.Unquote(text.Value)
			}
		}
		return true
	})
	return names
}
