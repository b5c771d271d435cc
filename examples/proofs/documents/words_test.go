package documents_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// avoided are the words that CONTRIBUTING.md asks to avoid, and how often each may still stand in documents, in
// exported doc comments, and in the texts of errors and log lines. The numbers only go down.
var avoided = []struct {
	words *regexp.Regexp
	left  int
}{
	{regexp.MustCompile(`(?i)\btells? whether\b`), 2},
	{regexp.MustCompile(`(?i)\b(is|are) told of\b`), 0},
	{regexp.MustCompile(`(?i)\bnobody\b`), 2},
	{regexp.MustCompile(`(?i)\bsomebody\b`), 0},
	{regexp.MustCompile(`(?i)\bwhoever\b`), 0},
	{regexp.MustCompile(`(?i)\bmended?\b`), 1},
	{regexp.MustCompile(`\bat the (most|least)\b`), 1},     // at most
	{regexp.MustCompile(`(^|[.:;] )(Who|Whom|Whose) `), 0}, // the noun
}

// madeFromCode are the pages that repeat doc comments and texts of the code.
var madeFromCode = map[string]bool{"docs/configuration.md": true, "docs/events.md": true, "docs/facts.md": true, "docs/series.md": true}

// Sentences that people read have a noun for each thing and a verb for each fact.
func TestWords(t *testing.T) {
	found := make([][]string, len(avoided))
	note := func(place, text string) {
		for i, a := range avoided {
			for range a.words.FindAllString(text, -1) {
				found[i] = append(found[i], place)
			}
		}
	}
	tree(t, ".md", func(path, text string) {
		if madeFromCode[path] {
			return
		}
		for i, line := range strings.Split(text, "\n") {
			note(path+":"+strconv.Itoa(i+1), line)
		}
	})
	tree(t, ".go", func(path, text string) {
		if !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "internal/") {
			readWords(t, path, text, note)
		}
	})
	for i, a := range avoided {
		if n := len(found[i]); n > a.left {
			t.Errorf("%s: %d places, and %d are allowed. Write it as CONTRIBUTING.md says. They are in %s", a.words, n, a.left, strings.Join(found[i], " "))
		} else if n < a.left {
			t.Logf("%s: %d places, and %d are allowed: lower the number", a.words, n, a.left)
		}
	}
}

// readWords notes the exported doc comments of a file, and the texts of its errors and log lines.
func readWords(t *testing.T, path, text string, note func(place, text string)) {
	t.Helper()
	files := token.NewFileSet()
	file := testkit.Must(parser.ParseFile(files, path, text, parser.ParseComments))
	at := func(node ast.Node) string { return path + ":" + strconv.Itoa(files.Position(node.Pos()).Line) }
	doc := func(comments ...*ast.CommentGroup) {
		for _, comment := range comments {
			if comment != nil {
				note(at(comment), strings.Join(strings.Fields(comment.Text()), " "))
			}
		}
	}
	exported := func(names ...*ast.Ident) bool {
		for _, name := range names {
			if name.IsExported() {
				return true
			}
		}
		return false
	}
	doc(file.Doc)
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.FuncDecl:
			if exported(n.Name) {
				doc(n.Doc)
			}
		case *ast.GenDecl:
			doc(n.Doc)
		case *ast.TypeSpec:
			if exported(n.Name) {
				doc(n.Doc, n.Comment)
			}
			return exported(n.Name)
		case *ast.ValueSpec:
			if exported(n.Names...) {
				doc(n.Doc, n.Comment)
			}
		case *ast.Field:
			if exported(n.Names...) {
				doc(n.Doc, n.Comment)
			}
		case *ast.CallExpr:
			if called, ok := n.Fun.(*ast.SelectorExpr); ok && speaks[called.Sel.Name] {
				for _, arg := range n.Args {
					ast.Inspect(arg, func(node ast.Node) bool {
						if text, ok := node.(*ast.BasicLit); ok && text.Kind == token.STRING {
							note(at(text), text.Value)
						}
						return true
					})
				}
			}
		}
		return true
	})
}

// speaks are the functions whose texts people read: errors and log lines.
var speaks = map[string]bool{
	"New": true, "Errorf": true, "Error": true, "Info": true, "Debug": true, "Trace": true,
	"Permanent": true, "Transient": true, "Invalid": true, "Reject": true, "Description": true, "Fatal": true, "Fatalf": true,
}
