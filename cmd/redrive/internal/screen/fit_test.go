package screen

import (
	"slices"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature V10: the columns that stay have what others leave. An extra one goes before a text is cut too short.
func TestFit(t *testing.T) {
	plain := Table{Columns: []Column{{Name: "KEY"}, {Name: "WHEN", Drop: 2}, {Name: "WHERE", Drop: 1}, {Name: "TEXT", Min: 10}}}
	plain.Row("a", strings.Repeat("w", 20), strings.Repeat("v", 10), strings.Repeat("t", 40))
	extra := Table{Columns: []Column{{Name: "KEY", Drop: 1}, {Name: "WHEN", Drop: 2, Extra: true}, {Name: "WHO", Min: 8},
		{Name: "TEXT", Min: 10}}}
	extra.Row("a", strings.Repeat("w", 14), strings.Repeat("v", 12), strings.Repeat("t", 40))
	for table, wanted := range map[*Table]map[int][]int{
		&plain: {200: {3, 20, 10, 40}, 60: {3, 20, 10, 21}, 49: {3, 20, 10, 10}, 48: {3, 0, 10, 31}, 26: {3, 0, 0, 21}, 5: {3, 0, 0, 10}},
		&extra: {80: {3, 14, 12, 40}, 55: {3, 14, 12, 20}, 54: {3, 0, 12, 35}, 30: {3, 0, 11, 12}, 24: {0, 0, 11, 11}},
	} {
		for most, want := range wanted {
			got := table.fit(most)
			testkit.Check(t, slices.Equal(got, want), "in %d columns: %v, want %v", most, got, want)
		}
	}
}
