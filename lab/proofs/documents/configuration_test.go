package documents_test

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

var update = flag.Bool("update", false, "write the generated pages anew")

// configurable are the packages whose exported structs named ...Config are in docs/configuration.md, and what else is
// set by users.
var configurable = []string{
	".", "settings", "naming", "classify", "poison", "middleware", "middleware/stages", "middleware/crashlimit", "middleware/breaker", "idempotency", "delay", "redrive", "redrive/letters", "redrive/campaigns", "redrive/console",
	"pubsub/wmkafka", "pubsub/wmamqp", "pubsub/wmsql", "observe/notify", "observe/notify/webhook",
}

var alsoConfigurable = []string{"naming.Scheme", "settings.Shared", "middleware.Backoff", "middleware.Policy", "stages.Stage", "idempotency.HandlerKey", "poison.Hooks", "poison.Sink", "redrive.Rules", "redrive.Hooks", "letters.Filter", "campaigns.Request", "campaigns.Edit", "campaigns.Policy"}

const aboutConfiguration = `# Configuration reference

For engineers who set fields: every field of every configuration, with its default. The zero value of a field means its
default. A field without a default is empty, or must be set, as its comment says. Durations are Go's time.Duration. The
page is made from the doc comments: ` + "`go test ./lab/proofs/documents -run TestConfiguration -update`" + `.

`

// docs/configuration.md has every field of every exported configuration, as the doc comments have it.
func TestConfigurationPage(t *testing.T) {
	const page = "docs/configuration.md"
	want := aboutConfiguration
	for _, folder := range configurable {
		want += sections(t, folder)
	}
	generated(t, page, want)
}

// generated writes a page with -update, and otherwise compares it.
func generated(t *testing.T, page, want string) {
	t.Helper()
	if *update {
		testkit.NoError(t, os.WriteFile(page, []byte(want), 0o644))
	}
	have, _ := os.ReadFile(page)
	if string(have) == want {
		return
	}
	lines := strings.Split(string(have), "\n")
	for line := range strings.Lines(want) {
		testkit.Check(t, slices.Contains(lines, strings.TrimSuffix(line, "\n")), "%s lacks %s", page, line)
	}
	t.Errorf("%s is not what the code says: run go test ./lab/proofs/documents -run %s -update, also on a conflict", page, t.Name())
}

// sections are the tables of a package.
func sections(t *testing.T, folder string) (text string) {
	t.Helper()
	files := testkit.Must(filepath.Glob(filepath.Join(folder, "*.go")))
	set := token.NewFileSet()
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file := testkit.Must(parser.ParseFile(set, path, nil, parser.ParseComments))
		for _, decl := range file.Decls {
			general, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range general.Specs {
				typed, ok := spec.(*ast.TypeSpec)
				if !ok || !typed.Name.IsExported() {
					continue
				}
				name := file.Name.Name + "." + typed.Name.Name
				if fields, ok := typed.Type.(*ast.StructType); ok &&
					(strings.HasSuffix(typed.Name.Name, "Config") || slices.Contains(alsoConfigurable, name)) {
					text += fmt.Sprintf("## %s\n\n| field | type | default | what it does |\n|---|---|---|---|\n%s\n", name, rows(set, fields))
				}
			}
		}
	}
	return text
}

var defaults = regexp.MustCompile(`(?s)\s*Default: (.*?)\.( |$)`)

// rows are the rows of a struct's fields.
func rows(set *token.FileSet, of *ast.StructType) (text string) {
	for _, f := range of.Fields.List {
		var typed strings.Builder
		_ = printer.Fprint(&typed, set, f.Type)
		comment := strings.Join(strings.Fields(f.Doc.Text()), " ")
		def := ""
		if at := defaults.FindStringSubmatchIndex(comment); at != nil {
			def = comment[at[2]:at[3]]
			comment = strings.TrimSpace(comment[:at[0]] + " " + comment[at[1]:])
		}
		if required := strings.Contains(comment, "Required."); required && def == "" {
			def, comment = "required", strings.TrimSpace(strings.Replace(comment, "Required.", "", 1))
		}
		names := f.Names
		if len(names) == 0 {
			names = []*ast.Ident{{Name: typed.String()[strings.LastIndex(typed.String(), ".")+1:]}}
			comment = strings.TrimPrefix(cmp.Or(comment, "the fields of "+typed.String()), "Shared: ")
		}
		for _, name := range names {
			if name.IsExported() {
				shown := strings.Join(strings.Fields(typed.String()), " ")
				text += fmt.Sprintf("| `%s` | `%s` | %s | %s |\n", name.Name, cell(shown), cell(def), cell(comment))
			}
		}
	}
	return text
}

func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;").Replace(text)
}
