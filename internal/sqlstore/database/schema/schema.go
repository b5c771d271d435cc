// Package schema describes the tables of Spillway's stores, and holds the SQL that makes them. A table grows from
// version to version, forward only. The table spillway_schema records the versions that were made.
package schema

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Table is a table that a store needs. It is the same on every kind of database.
type Table struct {
	// Component is the name under which spillway_schema records the table's versions.
	Component string
	// Name is the name of the table.
	Name string
	// Key holds the columns of the primary key in their order.
	Key []string
	// Versions make the table: 1, 2, ... in this order.
	Versions []Version
	// Files holds the files of the versions, in a folder for each kind of database. Default: Files().
	Files fs.FS
}

// Version makes one version of a table from the one before.
type Version struct {
	// File is the name of the file in each folder. Its statements can run again if some of them have run already, in
	// part or by hand. The last statement records the version.
	File string
	// Columns are those that the version adds. A table may have more.
	Columns []string
}

// Step is a version in the SQL of one kind of database.
type Step struct {
	File       string // with its folder
	Statements []string
	Columns    []string
}

// Found is what a database has under the name of a table.
type Found struct {
	Exists bool
	// Place names where the table is, if its kind of database has several places to look for one.
	Place string
	// Columns and Key are those of the table. Key is in the key's order.
	Columns, Key []string
	// Unfit says why the table cannot keep what a store promises. Nil if it can.
	Unfit error
}

// Session is a *sql.DB, *sql.Conn or *sql.Tx.
type Session interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Columns returns the columns of the newest version.
func (t Table) Columns() (columns []string) {
	for _, version := range t.Versions {
		columns = append(columns, version.Columns...)
	}
	return columns
}

// Check returns an error unless the table that was found can be t at its newest version. With another key nothing would
// ever conflict, and no error would say so.
func (t Table) Check(f Found) error { return t.check(f, t.Columns()) }

// CheckFirst returns an error unless the table that was found can be t at version 1: only then may a step change it.
func (t Table) CheckFirst(f Found) error { return t.check(f, t.Versions[0].Columns) }

func (t Table) check(f Found, columns []string) error {
	for _, want := range columns {
		if !slices.Contains(f.Columns, want) {
			return fmt.Errorf("table %q exists without column %q: it is not Spillway's, or of another version", t.Name,
				want)
		}
	}
	if !slices.Equal(f.Key, t.Key) {
		return fmt.Errorf("table %q exists with the primary key (%s) instead of (%s): it is not Spillway's, or of another version",
			t.Name, strings.Join(f.Key, ", "), strings.Join(t.Key, ", "))
	}
	return f.Unfit
}

// Complete reports whether a table that was found has all columns, recorded or not.
func (t Table) Complete(f Found) bool { return containsAll(f.Columns, t.Columns()) }

// Pending returns the steps that the table needs. A version counts as made if it is recorded and its columns are there:
// the table may have come out of another backup than the record. A recorded version that this program does not know is
// an error.
func (t Table) Pending(steps []Step, f Found, recorded []int) ([]Step, error) {
	if len(recorded) > 0 {
		if newest := slices.Max(recorded); newest > len(steps) {
			return nil, fmt.Errorf("table %q is of version %d, and this program knows none after %d: a newer release of Spillway "+
				"has upgraded it, and there is no way back; run that release or a later one", t.Name, newest, len(steps))
		}
	}
	for i, step := range steps {
		if !slices.Contains(recorded, i+1) || !containsAll(f.Columns, step.Columns) {
			return steps[i:], nil
		}
	}
	return nil, nil
}

func containsAll(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

//go:embed files
var embedded embed.FS

// Files holds the SQL of all tables, in the folders postgres, mysql and sqlite. A file has the same name in each
// folder. The names are numbered in the order in which the files are to be run.
func Files() fs.FS {
	files, err := fs.Sub(embedded, "files")
	if err != nil {
		panic(err) // the name is a valid one
	}
	return files
}

// first is the file that makes the table spillway_schema, in which the others record what they have made.
const first = "0001_versions.sql"

// Steps reads the statements of all versions from a folder of Files. Those of version 1 make spillway_schema too.
func (t Table) Steps(folder string) ([]Step, error) {
	record, err := statements(Files(), folder+"/"+first)
	if err != nil {
		return nil, err
	}
	files := t.Files
	if files == nil {
		files = Files()
	}
	steps := make([]Step, len(t.Versions))
	for i, version := range t.Versions {
		file := folder + "/" + version.File
		steps[i] = Step{File: file, Columns: version.Columns}
		if steps[i].Statements, err = statements(files, file); err != nil {
			return nil, err
		}
	}
	steps[0].Statements = append(record, steps[0].Statements...)
	return steps, nil
}

func statements(files fs.FS, name string) ([]string, error) {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, err
	}
	all, err := Split(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return all, nil
}

// Split returns the statements of a file, for drivers that take one at a time. A statement ends with a semicolon at the
// end of a line, and a comment is a line that begins with two hyphens. Split knows nothing else of SQL.
func Split(text string) (statements []string, err error) {
	var statement []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		if bare := strings.TrimSpace(line); bare == "" || strings.HasPrefix(bare, "--") {
			continue
		}
		line, ends := strings.CutSuffix(line, ";")
		if statement = append(statement, line); ends {
			statements = append(statements, strings.Join(statement, "\n"))
			statement = nil
		}
	}
	if len(statement) > 0 || len(statements) == 0 {
		return nil, fmt.Errorf("the file does not end with a statement and a semicolon")
	}
	return statements, nil
}
