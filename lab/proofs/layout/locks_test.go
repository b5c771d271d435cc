package layout_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Feature R13: a lock that is taken twice stops its process for ever. No method that locks the mutex of its receiver,
// itself or through others, is called while the mutex is held. A method whose name ends with Locked is called with the
// mutex held, so it locks nothing.
func TestNoLockIsTakenTwice(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	methods := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || name == "testdata") {
				return fs.SkipDir
			}
			found, n := takenTwice(sources(t, path)...)
			methods += n
			for _, fault := range found {
				t.Error(fault)
			}
		}
		return err
	})
	if err != nil || methods < 100 {
		t.Errorf("%d methods that lock: %v", methods, err)
	}
}

// The proof finds what it is there for.
func TestLocksThatAreTakenTwiceAreFound(t *testing.T) {
	const head = "package p\nimport \"sync\"\ntype T struct { n int; mu sync.Mutex }\n" +
		"func (t *T) Later() { t.mu.Lock(); defer t.mu.Unlock(); t.n++ }\nfunc (t *T) through() { t.Later() }\n"
	for body, want := range map[string]int{
		`func (t *T) leave() { t.mu.Lock(); defer t.mu.Unlock(); if t.n > 0 { t.Later() } }`:                    1,
		`func (t *T) leave() { t.mu.Lock(); defer t.mu.Unlock(); for range 2 { t.through() } }`:                 1,
		`func of(t *T) { t.mu.Lock(); t.Later(); t.mu.Unlock() }`:                                               1,
		`func (t *T) leave() { t.mu.Lock(); switch { case t.n > 0: t.mu.Unlock(); t.Later(); return }; t.n++ }`: 0,
		`func (t *T) leave() { t.mu.Lock(); if t.n > 0 { t.mu.Unlock(); return }; t.Later() }`:                  1,
		`func (t *T) leave() { t.mu.Lock(); t.mu.Unlock(); t.Later() }`:                                         0,
		`func (t *T) leave() { t.mu.Lock(); defer t.mu.Unlock(); go func() { t.Later() }() }`:                   0,
		`func (t *T) addLocked() { t.through() }`:                                                               1,
		`func (t *T) addLocked() { t.n++ }; func (t *T) add() { t.mu.Lock(); t.addLocked(); t.mu.Unlock() }`:    0,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", head+body, 0)
		if err != nil {
			t.Fatal(err)
		}
		if found, _ := takenTwice(file); len(found) != want {
			t.Errorf("%s: found %v", body, found)
		}
	}
}

func sources(t *testing.T, folder string) (files []*ast.File) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".go") && !strings.HasSuffix(e.Name(), "_test.go") {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(folder, e.Name()), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
	}
	return files
}

// locks is what a package does with the mutexes of its types.
type locks struct {
	mutexes map[string]map[string]bool // the fields that are mutexes, by type
	takes   map[string]map[string]bool // the fields that a type.method locks
	found   []string
}

// function is a function, with its receiver and parameters that have a mutex.
type function struct {
	*ast.FuncDecl
	name  string
	types map[string]string // by the variable's name
}

// takenTwice returns what is wrong with the locks of a package, and how many methods lock.
func takenTwice(files ...*ast.File) (found []string, methods int) {
	l := &locks{mutexes: map[string]map[string]bool{}, takes: map[string]map[string]bool{}}
	var all []function
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				l.declare(spec)
			}
			return true
		})
	}
	for _, file := range files {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				all = append(all, l.function(f))
			}
		}
	}
	for more := true; more; {
		more = false
		for _, f := range all {
			more = l.learn(f) || more
		}
	}
	for _, f := range all {
		held := map[string]bool{}
		if f.Recv != nil && strings.HasSuffix(f.Name.Name, "Locked") && len(f.Recv.List[0].Names) > 0 {
			on := f.Recv.List[0].Names[0].Name
			for field := range l.mutexes[f.types[on]] {
				held[on+"."+field] = true
			}
		}
		l.block(f, f.Body.List, held)
	}
	return l.found, len(l.takes)
}

func (l *locks) declare(spec *ast.TypeSpec) {
	structure, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, field := range structure.Fields.List {
		of, ok := field.Type.(*ast.SelectorExpr)
		if !ok || (of.Sel.Name != "Mutex" && of.Sel.Name != "RWMutex") {
			continue
		}
		if l.mutexes[spec.Name.Name] == nil {
			l.mutexes[spec.Name.Name] = map[string]bool{}
		}
		for _, name := range field.Names {
			l.mutexes[spec.Name.Name][name.Name] = true
		}
		if len(field.Names) == 0 {
			l.mutexes[spec.Name.Name][of.Sel.Name] = true
		}
	}
}

func (l *locks) function(d *ast.FuncDecl) function {
	f := function{FuncDecl: d, name: d.Name.Name, types: map[string]string{}}
	note := func(fields *ast.FieldList, receiver bool) {
		if fields == nil {
			return
		}
		for _, field := range fields.List {
			of := named(field.Type)
			if receiver {
				f.name = of + "." + d.Name.Name
			}
			for _, name := range field.Names {
				if l.mutexes[of] != nil {
					f.types[name.Name] = of
				}
			}
		}
	}
	note(d.Recv, true)
	note(d.Type.Params, false)
	return f
}

func named(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return named(of.X)
	case *ast.IndexExpr:
		return named(of.X)
	case *ast.Ident:
		return of.Name
	}
	return ""
}

// call returns the variable with a mutex on which a call locks or unlocks a field, or calls a method.
func (l *locks) call(f function, c *ast.CallExpr) (variable, field, method string) {
	sel, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", "", ""
	}
	if on, ok := sel.X.(*ast.Ident); ok {
		of := l.mutexes[f.types[on.Name]]
		for _, embedded := range []string{"Mutex", "RWMutex"} {
			if of[embedded] && strings.HasSuffix(sel.Sel.Name, "ock") {
				return on.Name, embedded, sel.Sel.Name
			}
		}
		if of != nil {
			return on.Name, "", f.types[on.Name] + "." + sel.Sel.Name
		}
	}
	if mu, ok := sel.X.(*ast.SelectorExpr); ok {
		if on, ok := mu.X.(*ast.Ident); ok && l.mutexes[f.types[on.Name]][mu.Sel.Name] {
			return on.Name, mu.Sel.Name, sel.Sel.Name
		}
	}
	return "", "", ""
}

// learn notes which mutexes of its receiver a method locks. It reports whether one of them was not known.
func (l *locks) learn(f function) (more bool) {
	if f.Recv == nil || len(f.Recv.List[0].Names) == 0 {
		return false
	}
	note := func(field string) {
		if !l.takes[f.name][field] {
			if more = true; l.takes[f.name] == nil {
				l.takes[f.name] = map[string]bool{}
			}
			l.takes[f.name][field] = true
		}
	}
	calls(f.Body, func(c *ast.CallExpr) {
		variable, field, method := l.call(f, c)
		switch {
		case variable != f.Recv.List[0].Names[0].Name:
		case field == "":
			for field := range l.takes[method] {
				note(field)
			}
		case method == "Lock" || method == "RLock":
			note(field)
		}
	})
	return more
}

// calls visits the calls of a node, but for those of other goroutines and of functions that are called later.
func calls(n ast.Node, visit func(*ast.CallExpr)) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit, *ast.GoStmt:
			return false
		case *ast.CallExpr:
			visit(n)
		}
		return true
	})
}

// block goes through statements with the variables whose mutex is held. It reports whether they end the function or
// the loop around them.
func (l *locks) block(f function, list []ast.Stmt, held map[string]bool) (ends bool) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ReturnStmt, *ast.BranchStmt:
			l.see(f, s, held)
			return true
		case *ast.DeferStmt:
			continue // it unlocks at the end
		case *ast.BlockStmt:
			ends = l.block(f, s.List, held)
		case *ast.IfStmt:
			l.see(f, s.Init, held)
			l.see(f, s.Cond, held)
			l.branch(f, s.Body.List, held)
			if s.Else != nil {
				l.branch(f, []ast.Stmt{s.Else}, held)
			}
		case *ast.ForStmt:
			l.see(f, s.Cond, held)
			l.branch(f, s.Body.List, held)
		case *ast.RangeStmt:
			l.see(f, s.X, held)
			l.branch(f, s.Body.List, held)
		case *ast.SwitchStmt:
			l.see(f, s.Tag, held)
			l.cases(f, s.Body, held)
		case *ast.TypeSwitchStmt:
			l.cases(f, s.Body, held)
		case *ast.SelectStmt:
			l.cases(f, s.Body, held)
		default:
			l.see(f, s, held)
		}
	}
	return ends
}

func (l *locks) cases(f function, body *ast.BlockStmt, held map[string]bool) {
	for _, s := range body.List {
		switch s := s.(type) {
		case *ast.CaseClause:
			for _, e := range s.List {
				l.see(f, e, held)
			}
			l.branch(f, s.Body, held)
		case *ast.CommClause:
			l.branch(f, s.Body, held)
		}
	}
}

// branch is a block that may not be run: what it unlocks is held behind it only if it ends there.
func (l *locks) branch(f function, list []ast.Stmt, held map[string]bool) {
	within := maps.Clone(held)
	if !l.block(f, list, within) {
		clear(held)
		maps.Copy(held, within)
	}
}

func (l *locks) see(f function, n ast.Node, held map[string]bool) {
	if n == nil || n == ast.Node((ast.Expr)(nil)) || n == ast.Node((ast.Stmt)(nil)) {
		return
	}
	calls(n, func(c *ast.CallExpr) {
		variable, field, method := l.call(f, c)
		of := variable + "." + field
		switch {
		case variable == "":
		case method == "Unlock" || method == "RUnlock":
			delete(held, of)
		case method == "Lock" || method == "RLock":
			held[of] = true
		default:
			for field := range l.takes[method] {
				if held[of+field] {
					l.found = append(l.found, f.name+" holds "+of+field+" and calls "+method+", which locks it")
				}
			}
		}
	})
}
