// Package schema says what table a store needs, and whether one that was found is that table.
package schema

import (
	"fmt"
	"slices"
	"strings"
)

// Table is a table that a store needs.
type Table struct {
	// Name is the name of the table.
	Name string
	// Create holds the statements that make it and its indexes. Each must be safe to run again (IF NOT EXISTS).
	Create []string
	// Columns are those the store uses; a table that has more will do.
	Columns []string
	// Key holds the columns of the primary key in their order.
	Key []string
}

// Check returns an error unless a table with these columns and this primary key can be t: with another key nothing would
// ever conflict, and nothing would say so.
func (t Table) Check(columns, key []string) error {
	for _, want := range t.Columns {
		if !slices.Contains(columns, want) {
			return fmt.Errorf("table %q exists without column %q: it is not Spillway's, or of another version", t.Name, want)
		}
	}
	if !slices.Equal(key, t.Key) {
		return fmt.Errorf("table %q exists with the primary key (%s) instead of (%s): it is not Spillway's, or of another version",
			t.Name, strings.Join(key, ", "), strings.Join(t.Key, ", "))
	}
	return nil
}
