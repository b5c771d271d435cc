package documents_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Feature O5: each log line of the library is an event of internal/logging, each event has a line, and the line has the
// fields of the event.
func TestLogLines(t *testing.T) {
	events := eventNames(t)
	names := fieldNames(t)
	packages := map[string]*logLines{}
	tree(t, ".go", func(at, text string) {
		if strings.HasSuffix(at, "_test.go") || notLibrary(at) {
			return
		}
		file := testkit.Must(parser.ParseFile(token.NewFileSet(), at, text, 0))
		dir := path.Dir(at)
		if packages[dir] == nil {
			packages[dir] = &logLines{names: names, functions: map[string][]*ast.FuncDecl{}, uses: map[string][]*ast.FuncDecl{}}
		}
		packages[dir].read(t, at, file)
	})
	with := map[string]bool{}
	for _, p := range packages {
		for _, f := range p.with {
			maps.Copy(with, p.keys(t, f, 2))
		}
	}
	for _, variable := range slices.Sorted(maps.Keys(events)) {
		e, written, used := events[variable], maps.Clone(with), false
		for _, p := range packages {
			for _, f := range p.uses[variable] {
				used = true
				maps.Copy(written, p.keys(t, f, 2))
			}
			for _, args := range p.exact[variable] {
				for _, key := range args {
					testkit.Check(t, slices.Contains(e.Fields(), key),
						"a line of logging.%s has the field %s, which the event lacks", variable, key)
				}
			}
		}
		testkit.Check(t, used, "no line is written of logging.%s: remove the event", variable)
		for _, field := range e.Fields() {
			testkit.Check(t, !used || written[field], "no line of logging.%s has the field %s", variable, field)
		}
	}
}

// missesFile is where the package of the events writes one itself.
const missesFile = "internal/logging/misses.go"

// notLibrary reports whether a file's log lines are not the library's.
func notLibrary(at string) bool {
	if at == missesFile {
		return false
	}
	for _, dir := range []string{"examples/", "conformance/", "cmd/", "internal/logging/", "internal/testkit/",
		"internal/faultproxy/", "internal/downstream/"} {
		if strings.HasPrefix(at, dir) {
			return true
		}
	}
	return at == "pubsub/wmamqp/closing.go" // a logger that passes lines of watermill-amqp on
}

// logLines are the log lines of a package.
type logLines struct {
	names     map[string]string // of fields, by their constants
	functions map[string][]*ast.FuncDecl
	uses      map[string][]*ast.FuncDecl // where an event is written, by its variable
	exact     map[string][][]string      // the fields of a line whose fields stand beside it
	with      []*ast.FuncDecl
}

func (p *logLines) read(t *testing.T, at string, file *ast.File) {
	if p.exact == nil {
		p.exact = map[string][][]string{}
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		p.functions[f.Name.Name] = append(p.functions[f.Name.Name], f)
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				if at == missesFile {
					p.uses[n.Name] = append(p.uses[n.Name], f)
				}
			case *ast.SelectorExpr:
				if isPackage(n.X, "logging") {
					p.uses[n.Sel.Name] = append(p.uses[n.Sel.Name], f)
				}
			case *ast.CallExpr:
				p.call(t, at, f, n)
			}
			return true
		})
	}
}

func (p *logLines) call(t *testing.T, at string, f *ast.FuncDecl, call *ast.CallExpr) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	switch name, n := method.Sel.Name, len(call.Args); {
	case name == "Error" && n == 3, (name == "Info" || name == "Debug" || name == "Trace") && n == 2:
		if !isPackage(method.X, "slog") {
			t.Errorf("%s: %s writes a log line by itself. Declare an event in internal/logging, write it with logging.<Event>.Write(logger, err, "+
				"logging.Fields{...}), and run TestEventsPage with -update", at, f.Name.Name)
		}
	case name == "With" && n == 1 && strings.Contains(strings.ToLower(nameOf(method.X)), "logger"):
		p.with = append(p.with, f)
	case name == "Write" && n == 3:
		event, ok := method.X.(*ast.SelectorExpr)
		if fields, literal := call.Args[2].(*ast.CompositeLit); ok && literal && isPackage(event.X, "logging") {
			p.exact[event.Sel.Name] = append(p.exact[event.Sel.Name], slices.Collect(maps.Keys(p.of(t, fields))))
		}
	}
}

// keys are the keys of fields in f, and in the functions of its package that it calls.
func (p *logLines) keys(t *testing.T, f *ast.FuncDecl, depth int) map[string]bool {
	all := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			maps.Copy(all, p.of(t, n))
		case *ast.IndexExpr:
			if key := p.key(n.Index); key != "" {
				all[key] = true
			}
		case *ast.CallExpr:
			if depth > 0 {
				for _, callee := range p.functions[nameOf(n.Fun)] {
					maps.Copy(all, p.keys(t, callee, depth-1))
				}
			}
		}
		return true
	})
	return all
}

// of returns the keys of fields, and none of another literal.
func (p *logLines) of(t *testing.T, literal *ast.CompositeLit) map[string]bool {
	if kind := nameOf(literal.Type); kind != "Fields" && kind != "LogFields" {
		return nil
	}
	keys := map[string]bool{}
	for _, e := range literal.Elts {
		pair := e.(*ast.KeyValueExpr)
		key := p.key(pair.Key)
		for constant, name := range p.names {
			if _, text := pair.Key.(*ast.BasicLit); text && name == key {
				t.Errorf("a field is named %q: name it logging.%s", name, constant)
			}
		}
		keys[key] = true
	}
	return keys
}

func (p *logLines) key(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if key, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return key
		}
	case *ast.SelectorExpr:
		if isPackage(e.X, "logging") {
			return p.names[e.Sel.Name]
		}
	}
	return ""
}

func isPackage(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
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
