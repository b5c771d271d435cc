package documents_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each line of docs/security.md names a test, and each test that a document names exists.
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
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "- ") && !strings.Contains(line, "(`Test") {
				t.Errorf("%s: no test is named: %s", path, line)
			}
		}
	})
}
