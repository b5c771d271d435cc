package documents_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// citation is how code cites a promise, feature or decision: "Feature D5", "promises P1, P7", "Decision 12".
var (
	citation = regexp.MustCompile(`\b([Ff]eatures?|[Pp]romises?|[Dd]ecisions?) ((?:[A-Z]?\d+[a-z]?)(?:(?:, | and )[A-Z]?\d+[a-z]?\b)*)`)
	idOf     = regexp.MustCompile(`[A-Z]?\d+[a-z]?`)
	rowOf    = regexp.MustCompile(`(?m)^- \*\*([A-Z]?\d+)\*\*:`)
	suiteRow = regexp.MustCompile(`\{"([HF]\d+)", "`)
	linkOf   = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)]*))?\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noAnchor = regexp.MustCompile(`[^\pL\pN _-]`)
)

// tree calls visit with every file of the project that ends with suffix.
func tree(t *testing.T, suffix string, visit func(path, text string)) {
	t.Helper()
	testkit.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != "." {
			return filepath.SkipDir
		}
		if !entry.IsDir() && strings.HasSuffix(path, suffix) {
			visit(path, read(path))
		}
		return nil
	}))
}

// defined are the ids of docs/promises.md, and of the suite's rows that it leaves to features.go.
func defined(t *testing.T) []string {
	t.Helper()
	var ids []string
	for _, row := range rowOf.FindAllStringSubmatch(read("docs/promises.md"), -1) {
		ids = append(ids, row[1])
	}
	testkit.Require(t, len(ids) >= 80, "docs/promises.md defines %d ids: its tables are not read", len(ids))
	for _, row := range suiteRow.FindAllStringSubmatch(read("conformance/features.go"), -1) {
		ids = append(ids, row[1])
	}
	return ids
}

// Every promise, feature and decision that code cites is defined in docs/promises.md, and every promise and feature
// that is defined there has a test that names it.
func TestEveryCitedIDIsDefined(t *testing.T) {
	ids := defined(t)
	tested := map[string]bool{}
	tree(t, ".go", func(path, text string) {
		for _, cited := range citation.FindAllStringSubmatch(text, -1) {
			for _, id := range idOf.FindAllString(cited[2], -1) {
				base := strings.TrimRight(id, "abcdefghijklmnopqrstuvwxyz") // V1b is a part of V1
				if !slices.Contains(ids, base) {
					t.Errorf("%s cites %q, which docs/promises.md does not define", path, cited[0])
				}
				if strings.HasSuffix(path, "_test.go") {
					tested[base] = true
				}
			}
		}
		if filepath.Dir(path) == "conformance" { // its rows are tests too
			for _, id := range ids {
				if strings.Contains(text, `{"`+id+`", "`) {
					tested[id] = true
				}
			}
		}
	})
	for _, id := range ids {
		testkit.Check(t, (id[0] <= '9') || tested[id], "docs/promises.md defines %s, and no test names it", id)
	}
}

// Every link of a document to a file of the project leads to one, and every anchor to a heading.
func TestLinksLeadSomewhere(t *testing.T) {
	tree(t, ".md", func(path, text string) {
		for _, link := range linkOf.FindAllStringSubmatch(text, -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			target := path
			if link[1] != "" {
				target = filepath.Join(filepath.Dir(path), link[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %q, where there is no file", path, link[1])
			} else if link[2] != "" && !slices.Contains(anchors(read(target)), link[2]) {
				t.Errorf("%s links to %q, where there is no heading %q", path, link[1], link[2])
			}
		}
	})
}

// anchors are those of a document's headings.
func anchors(text string) (all []string) {
	for _, h := range heading.FindAllStringSubmatch(text, -1) {
		all = append(all, strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-"))
	}
	return all
}
