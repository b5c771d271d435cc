package documents_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

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
			if !slices.Contains(tests, name[1]) {
				t.Errorf("%s names %s, which is not declared", path, name[1])
			}
		}
		if path != "docs/security.md" {
			return
		}
		for _, item := range regexp.MustCompile(`(?m)^- .*\n(?:  .*\n)*`).FindAllString(text, -1) {
			if !strings.Contains(item, "(`Test") {
				t.Errorf("%s: no test is named: %s", path, item)
			}
		}
	})
}

// docs/dead-letters.md has each reason that Spillway sets.
func TestReasonsAreDocumented(t *testing.T) {
	_, reasons, _ := strings.Cut(read(t, "docs/dead-letters.md"), "### Reasons")
	set := regexp.MustCompile(`(?m)^\tReason\w+ += "(\w+)"$`).FindAllStringSubmatch(read(t, "classify/class.go"), -1)
	if len(set) < 10 {
		t.Fatalf("classify/class.go sets %d reasons: it is not read", len(set))
	}
	for _, reason := range set {
		if !strings.Contains(reasons, "`"+reason[1]+"`") {
			t.Errorf("docs/dead-letters.md has no row of the reason %s", reason[1])
		}
	}
}
