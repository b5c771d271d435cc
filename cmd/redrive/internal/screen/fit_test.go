package screen

import (
	"slices"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Feature V10: what a column leaves that is left out on a narrow terminal, the columns that stay have.
func TestFit(t *testing.T) {
	table := Table{Columns: []Column{{Name: "KEY"}, {Name: "WHEN", Drop: 2}, {Name: "WHERE", Drop: 1}, {Name: "TEXT", Min: 10}}}
	table.Row("a", strings.Repeat("w", 20), strings.Repeat("v", 10), strings.Repeat("t", 40))
	for most, want := range map[int][]int{
		200: {3, 20, 10, 40}, 60: {3, 20, 10, 21}, 49: {3, 20, 10, 10}, 48: {3, 0, 10, 31}, 27: {3, 0, 10, 10}, 26: {3, 0, 0, 21}, 15: {3, 0, 0, 10}, 5: {3, 0, 0, 10},
	} {
		got := table.fit(most)
		testkit.Check(t, slices.Equal(got, want), "in %d columns: %v, want %v", most, got, want)
	}
}

// Feature V10: an extra column is left out before a text of another one is cut to less than can be read well.
func TestFitExtra(t *testing.T) {
	table := Table{Columns: []Column{{Name: "KEY", Drop: 1}, {Name: "WHEN", Drop: 2, Extra: true}, {Name: "WHO", Min: 8}, {Name: "TEXT", Min: 10}}}
	table.Row("a", strings.Repeat("w", 14), strings.Repeat("v", 12), strings.Repeat("t", 40))
	for most, want := range map[int][]int{
		80: {3, 14, 12, 40}, 60: {3, 14, 12, 25}, 55: {3, 14, 12, 20}, 54: {3, 0, 12, 35}, 30: {3, 0, 11, 12}, 25: {3, 0, 8, 10}, 24: {0, 0, 11, 11},
	} {
		got := table.fit(most)
		testkit.Check(t, slices.Equal(got, want), "in %d columns: %v, want %v", most, got, want)
	}
}
