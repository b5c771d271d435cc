package documents_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// eventFiles declare the events, in the order of docs/events.md.
var eventFiles = []string{"failing", "returning"}

const aboutEvents = `# Log events

For operators who look up a log line: every event that Spillway writes. The line itself has the text and the fields;
[log lines](logs.md) says how to read it.
*When* is one word: **each** time, message or try; **once** for what the fields name; **outage**: once an outage;
**start** or **stop** of the router. The page is made from ` + "`internal/logging`:\n`go test ./lab/proofs/documents -run TestEventsPage -update`" + `.
`

var (
	whenAndDo  = regexp.MustCompile(`^(each|once|outage|start|stop): (\S.*)$`)
	pageOfDocs = regexp.MustCompile(`docs/(([a-z-]+)\.md(#[a-z-]+)?)`)
)

// Feature O5: docs/events.md has each event with its level, when it comes and what to do.
func TestEventsPage(t *testing.T) {
	byName := map[string]*logging.Event{}
	for _, e := range logging.Events() {
		byName[e.Name()] = e
	}
	levels := map[watermill.LogLevel]string{watermill.DebugLogLevel: "Debug", watermill.InfoLogLevel: "Info", watermill.ErrorLogLevel: "Error"}
	page := aboutEvents
	for _, group := range eventGroups(t) {
		page += "\n## " + strings.TrimSuffix(strings.TrimSpace(group.Doc.Text()), ".") +
			"\n\n| event | level | when | do |\n|---|---|---|---|\n"
		for _, spec := range group.Specs {
			spec := spec.(*ast.ValueSpec)
			e := byName[eventName(spec.Values[0])]
			if e == nil {
				t.Fatalf("logging.%s is declared under the name of another event, or under none", spec.Names[0])
			}
			delete(byName, e.Name())
			comment := whenAndDo.FindStringSubmatch(strings.Join(strings.Fields(spec.Doc.Text()), " "))
			if comment == nil {
				t.Errorf("the comment of logging.%s does not say when and what to do, such as: // each: Repair the topic.", spec.Names[0])
				continue
			}
			page += fmt.Sprintf("| `%s` | %s | %s | %s |\n", e.Name(), levels[e.Level()], comment[1],
				pageOfDocs.ReplaceAllString(comment[2], "[$2]($1)"))
		}
	}
	for name := range byName {
		t.Errorf("the event %s is in no file of eventFiles", name)
	}
	generated(t, "docs/events.md", page)
}

// eventGroups are the declarations of events.
func eventGroups(t *testing.T) (groups []*ast.GenDecl) {
	for _, name := range eventFiles {
		file := testkit.Must(
			parser.ParseFile(token.NewFileSet(), "internal/logging/"+name+".go", nil, parser.ParseComments))
		for _, d := range file.Decls {
			if group, ok := d.(*ast.GenDecl); ok && group.Tok == token.VAR {
				groups = append(groups, group)
			}
		}
	}
	return groups
}

// eventName is the name in a declaration of an event, with or without always.
func eventName(value ast.Expr) (name string) {
	ast.Inspect(value, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && nameOf(call.Fun) == "event" {
			name, _ = strconv.Unquote(call.Args[1].(*ast.BasicLit).Value)
		}
		return true
	})
	return name
}

// eventNames returns the events by the names of their variables.
func eventNames(t *testing.T) map[string]*logging.Event {
	byName := map[string]*logging.Event{}
	for _, e := range logging.Events() {
		byName[e.Name()] = e
	}
	events := map[string]*logging.Event{}
	for _, group := range eventGroups(t) {
		for _, spec := range group.Specs {
			spec := spec.(*ast.ValueSpec)
			events[spec.Names[0].Name] = byName[eventName(spec.Values[0])]
		}
	}
	return events
}
