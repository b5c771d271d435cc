// Package documents_test checks what people read: links, names, Go in Markdown, words, the tables of fields and of log
// lines.
package documents_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

const module = "github.com/watermill-spillway/spillway"

// All paths are those of the repository.
func TestMain(m *testing.M) {
	if err := os.Chdir("../../.."); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// The quick start of the README is the code of Example, to the letter and at most 10 lines.
func TestReadmeQuickStartCompiles(t *testing.T) {
	readme, source := read("README.md"), read("example_test.go")
	_, rest, _ := strings.Cut(readme, "## Quick start\n\n```go\n")
	shown, _, ok := strings.Cut(rest, "```")
	_, rest, _ = strings.Cut(source, "// begin quick start\n")
	compiled, _, found := strings.Cut(rest, "\t// end quick start")
	testkit.Require(t, ok && found, "no quick start in README.md or example_test.go")
	compiled = strings.ReplaceAll("\n"+compiled, "\n\t", "\n")[1:]
	testkit.Check(t, shown == compiled, "README.md shows\n%s\nexample_test.go runs\n%s", shown, compiled)
	lines := strings.Count(shown, "\n")
	testkit.Check(t, lines <= 10, "%d lines", lines)
}

func read(name string) string { return string(testkit.Must(os.ReadFile(name))) }

// Each item of docs/security.md names a test, and each test that a document names exists.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	var tests []string
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	tree(t, "_test.go", func(_, text string) {
		for _, name := range declared.FindAllStringSubmatch(text, -1) {
			tests = append(tests, name[1])
		}
	})
	tree(t, ".md", func(path, text string) {
		for _, name := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(text, -1) {
			testkit.Check(t, slices.Contains(tests, name[1]), "%s names %s, which is not declared", path, name[1])
		}
		if path != "docs/security.md" {
			return
		}
		for _, item := range regexp.MustCompile(`(?m)^- .*\n(?:  .*\n)*`).FindAllString(text, -1) {
			testkit.Check(t, strings.Contains(item, "(`Test"), "%s: no test is named: %s", path, item)
		}
	})
}

// docs/dead-letters.md has each reason that Spillway sets.
func TestReasonsAreDocumented(t *testing.T) {
	_, reasons, _ := strings.Cut(read("docs/dead-letters.md"), "### Reasons")
	set := regexp.MustCompile(`(?m)^\tReason\w+ += "(\w+)"$`).FindAllStringSubmatch(read("classify/class.go"), -1)
	testkit.Require(t, len(set) >= 10, "classify/class.go sets %d reasons: it is not read", len(set))
	for _, reason := range set {
		testkit.Check(t, strings.Contains(reasons, "`"+reason[1]+"`"),
			"docs/dead-letters.md has no row of the reason %s", reason[1])
	}
}
