package conformance

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

var update = flag.Bool("update", false, "write the table of sentences in docs/pubsub.md")

const page = "../docs/pubsub.md"

// The page has each sentence, with what is lost without it. Some row of the suite holds it.
func TestContractIsOnItsPage(t *testing.T) {
	text := testkit.Must(os.ReadFile(page))
	var lines []string
	for _, s := range contract() {
		testkit.Check(t, slices.ContainsFunc(features(), func(f feature) bool { return slices.Contains(f.sentences(), s.id) }),
			"no row rests on %s", s)
		testkit.Check(t, s.of != "" && s.lost != "", "%s does not say what is lost without it", s)
		lines = append(lines, fmt.Sprintf("| %s | **%s.** %s | %s | %s |\n", s.id, upper(s.title),
			coded.ReplaceAllString(s.text, "`$0`"), coded.ReplaceAllString(s.lost, "`$0`"), s.of))
	}
	const head = "| id | sentence | without it | of |\n|---|---|---|---|\n"
	table := head + strings.Join(lines, "")
	if *update {
		found := regexp.MustCompile(regexp.QuoteMeta(head) + `(\| K.*\n)*`)
		text = found.ReplaceAllLiteral(text, []byte(table))
		testkit.NoError(t, os.WriteFile(page, text, 0o644))
	}
	testkit.Check(t, strings.Contains(string(text), table),
		"the table of sentences in %s is not of this suite: run this test with -update", page)
}

// coded are the words of a sentence that are code.
var coded = regexp.MustCompile(`\b(Publish|Ack|Close|RedeliveryTime|InitializeTopics|ListWaiting|Deduplicates\(\) bool|` +
	`(spillway|poison|classify|letters|redrive)\.[A-Z][\w.]*\w|x-original-metadata-b64|TooLarge: true)`)

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// A row rests on sentences that a failure names, and the documentation lists it, for those who pin rows.
func TestRows(t *testing.T) {
	doc := string(testkit.Must(os.ReadFile("doc.go")))
	for _, f := range features() {
		line := fmt.Sprintf("//\t%-4s %s\n", f.id, f.title)
		testkit.Check(t, strings.Contains(doc, line), "doc.go lacks the line %q", line)
		for _, id := range f.sentences() {
			s, ok := said(id)
			testkit.Check(t, ok && strings.Contains(f.why(), s.String()), "%s rests on %q, and says %s", f.id, id, f.why())
		}
		testkit.Check(t, len(f.sentences()) != 0, "%s rests on no sentence", f.id)
	}
}
