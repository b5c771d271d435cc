package documents_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// eventGroups are the comments of the declarations of events, in the order of docs/events.md.
var eventGroups = []string{"A message fails", "Other modules", "Functions of yours", "Outages, and the breaker",
	"The crash limit", "Stages and the delay store", "The receiver, and the purge of keys", "Redrives, letters and campaigns",
	"Notices", "Adapters for Kafka, RabbitMQ and SQL"}

const aboutEvents = `# Log events

For operators who look up a log line: every event that Spillway writes. The line itself has the text and the fields;
[log lines](logs.md) says how to read it.
*When* is one word: **each** time, message or try; **once** for what the fields name; **outage**: once an outage;
**start** or **stop** of the router. The page is made by
` + "`go test ./lab/proofs/documents -run TestEventsPage -update`" + `.
`

var (
	whenAndDo  = regexp.MustCompile(`^(each|once|outage|start|stop): (\S.*)$`)
	pageOfDocs = regexp.MustCompile(`docs/(([a-z-]+)\.md(#[a-z-]+)?)`)
)

// An event is one as its package declares it.
type event struct {
	variable, name, level, group, comment string
}

// Feature O5: docs/events.md has each event with its level, when it comes and what to do.
func TestEventsPage(t *testing.T) {
	rows, has := map[string]string{}, map[string]string{}
	calm := map[string]map[string]string{} // the events that need nothing, by group, level and time
	for _, e := range events(t) {
		testkit.Check(t, has[e.name] == "", "%s and %s have the name %s", has[e.name], e.variable, e.name)
		has[e.name] = e.variable
		comment := whenAndDo.FindStringSubmatch(e.comment)
		if comment == nil || !slices.Contains(eventGroups, e.group) {
			t.Errorf("the comment of %s does not say when and what to do, such as // each: Repair the topic., "+
				"or that of its declaration, %q, is none of eventGroups", e.variable, e.group)
			continue
		}
		if calm[e.group] == nil {
			calm[e.group] = map[string]string{}
		}
		if kind := e.level + ", " + comment[1]; comment[2] == "nothing" {
			calm[e.group][kind] += ", `" + e.name + "`"
		} else {
			rows[e.group] += fmt.Sprintf("- `%s` (%s): %s\n", e.name, kind, pageOfDocs.ReplaceAllString(comment[2], "[$2]($1)"))
		}
	}
	page := aboutEvents
	for _, group := range eventGroups {
		page += "\n## " + group + "\n\n" + rows[group]
		for _, kind := range slices.Sorted(maps.Keys(calm[group])) {
			page += "- nothing to do (" + kind + "): " + calm[group][kind][2:] + "\n"
		}
	}
	generated(t, "docs/events.md", page)
}

// events returns the events that the library declares, in the order of its files. The variable is that of the package
// logging, or has the folder of its own before it.
func events(t *testing.T) (all []event) {
	tree(t, ".go", func(at, text string) {
		if strings.HasSuffix(at, "_test.go") || !strings.Contains(text, "Event(\"") {
			return
		}
		file := testkit.Must(parser.ParseFile(token.NewFileSet(), at, text, parser.ParseComments))
		for _, d := range file.Decls {
			group, ok := d.(*ast.GenDecl)
			if !ok || group.Tok != token.VAR {
				continue
			}
			for _, spec := range group.Specs {
				spec := spec.(*ast.ValueSpec)
				for _, value := range spec.Values {
					if name, level := eventOf(value); name != "" {
						all = append(all, event{path.Dir(at) + "." + spec.Names[0].Name, name, level,
							strings.TrimSuffix(strings.TrimSpace(group.Doc.Text()), "."), strings.Join(strings.Fields(spec.Doc.Text()), " ")})
					}
				}
			}
		}
	})
	return all
}

// eventOf returns the name and level in a declaration of an event, with or without Always, or "".
func eventOf(value ast.Expr) (name, level string) {
	ast.Inspect(value, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && len(call.Args) == 2 {
			if kind, is := strings.CutSuffix(nameOf(call.Fun), "Event"); is {
				if text, is := call.Args[0].(*ast.BasicLit); is {
					name, _ = strconv.Unquote(text.Value)
					level = kind
				}
			}
		}
		return true
	})
	return name, level
}
