// Package seriestest checks queries of Prometheus against the series that package prom registers. docs/series.md lists
// them, and a test of package prom keeps the list true.
package seriestest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Series are the labels of each series, by its name.
type Series map[string][]string

// Load reads docs/series.md, from any folder of the module.
func Load(t testing.TB) Series {
	t.Helper()
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		page, err := os.ReadFile(filepath.Join(folder, "docs", "series.md"))
		if err == nil {
			return parse(string(page))
		}
		above := filepath.Dir(folder)
		if above == folder {
			t.Fatal("docs/series.md is in no folder above this one")
		}
		folder = above
	}
}

func parse(page string) Series {
	found := Series{"up": nil, "ALERTS": {"alertname", "alertstate"}}
	for _, row := range regexp.MustCompile("(?m)^\\| `(spillway_\\w+)` \\| ([\\w, ]*) \\|").FindAllStringSubmatch(page,
		-1) {
		found[row[1]] = strings.FieldsFunc(row[2], func(r rune) bool { return r == ',' || r == ' ' })
	}
	return found
}

// Recorded returns the series that a file of rules records. One named spillway:x:increase15m has the labels of
// spillway_x_total; the others have none.
func (s Series) Recorded(rules string) Series {
	found := Series{}
	for _, match := range record.FindAllStringSubmatch(rules, -1) {
		counted, _, _ := strings.Cut(strings.TrimPrefix(match[1], "spillway:"), ":increase")
		found[match[1]] = s["spillway_"+counted+"_total"]
	}
	return found
}

var (
	record   = regexp.MustCompile(`record: (spillway:\S+)`)
	name     = regexp.MustCompile(`\b(spillway[_:][\w:]+|up|ALERTS)\b(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)
	grouping = regexp.MustCompile(`\b(?:by|on|without|ignoring) \(([^)]*)\)`)
	suffix   = regexp.MustCompile(`_seconds_(bucket|sum|count)$`)
	// scraped are the labels that a scrape adds.
	scraped = []string{"job", "instance", "pod"}
)

// Check fails the test for a series or label of query that does not exist, and returns the labels that its series have.
// Recorded are the series that rules record, with the labels that they keep.
func (s Series) Check(t testing.TB, where, query string, recorded Series) (labels []string) {
	t.Helper()
	bare := regexp.MustCompile(`"[^"]*"`).ReplaceAllString(query, `""`)
	labels = slices.Clone(scraped)
	for _, match := range name.FindAllStringSubmatch(bare, -1) {
		has, known := recorded[match[1]]
		if !known {
			has, known = s[match[1]]
		}
		if histogram := suffix.ReplaceAllString(match[1], "_seconds"); !known && histogram != match[1] {
			has, known = s[histogram]
			has = append(slices.Clone(has), "le")
		}
		if !known {
			t.Errorf("%s asks for %s, which is not in docs/series.md", where, match[1])
			continue
		}
		has = append(slices.Clone(has), scraped...)
		for _, m := range matcher.FindAllStringSubmatch(match[2], -1) {
			if !slices.Contains(has, m[1]) {
				t.Errorf("%s asks %s for the label %s, which it does not have", where, match[1], m[1])
			}
		}
		labels = append(labels, has...)
	}
	for _, match := range grouping.FindAllStringSubmatch(bare, -1) {
		for label := range strings.SplitSeq(match[1], ",") {
			if label = strings.TrimSpace(label); label != "" && !slices.Contains(labels, label) {
				t.Errorf("%s groups by %s, which no series of it has: %s", where, label, query)
			}
		}
	}
	return labels
}
