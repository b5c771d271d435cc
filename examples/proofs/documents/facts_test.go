package documents_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

const aboutFacts = `# Facts

For engineers who ask why the code does not trust what it stands on. Each fact about Watermill, a broker or a database has a test,
which ` + "`make facts`" + ` runs. If one fails, the world has changed: look whether our answer is still needed. The page is made from the
comments of the tests: ` + "`go test ./examples/proofs/documents -run TestFactsPage -update`" + `.
`

var (
	fact       = regexp.MustCompile(`^Fact(?:, ([^:]*))?: (.*)$`)
	testInText = regexp.MustCompile(`\bTest\w+`)
)

// docs/facts.md has each fact that a test's comment states.
func TestFactsPage(t *testing.T) {
	page, folder := aboutFacts, ""
	tree(t, "_test.go", func(at, text string) {
		if !strings.Contains(text, "\n// Fact") {
			return
		}
		file := testkit.Must(parser.ParseFile(token.NewFileSet(), at, text, parser.ParseComments))
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			stated := fact.FindStringSubmatch(strings.Join(strings.Fields(f.Doc.Text()), " "))
			if stated == nil {
				continue
			}
			if path.Dir(at) != folder {
				folder = path.Dir(at)
				page += "\n## " + folder + "\n\n| fact | of | test |\n|---|---|---|\n"
			}
			said := cell(strings.ToUpper(stated[2][:1]) + stated[2][1:])
			page += "| " + testInText.ReplaceAllString(said, "`$0`") + " | " + stated[1] + " | `" + f.Name.Name + "` |\n"
		}
	})
	generated(t, "docs/facts.md", page)
}
