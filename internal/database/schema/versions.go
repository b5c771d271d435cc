package schema

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Versions is a table that grows from version to version, forward only. Each version is a file of SQL that a user can run
// too. The table spillway_schema, which the first file makes, says which of them have run.
type Versions struct {
	// Component is the name under which spillway_schema knows the table.
	Component string
	// Table is the table as it is at the newest version. Its Create is not used.
	Table Table
	// Steps make the versions 1, 2, ... in this order.
	Steps []Step
}

// Step makes one version from the one before.
type Step struct {
	// File is the name of the file that holds the statements.
	File string
	// Statements can run again where some of them have run already, in part or by hand. The last one records the version.
	Statements []string
	// Columns are those that the version adds.
	Columns []string
}

// State is what a database says of the table.
type State struct {
	// Columns are empty where there is no table.
	Columns []string
	// Recorded holds the versions that spillway_schema knows of. It is empty where there is no such table.
	Recorded []int
}

// Newest is the version that this program makes.
func (v Versions) Newest() int { return len(v.Steps) }

// Pending returns the steps that a database in this state needs. What is recorded counts only with the columns to show
// for it: the table may have come out of another backup than the record. A version that this program does not know is an
// error.
func (v Versions) Pending(s State) ([]Step, error) {
	if len(s.Recorded) > 0 {
		if newest := slices.Max(s.Recorded); newest > v.Newest() {
			return nil, fmt.Errorf("table %q is of version %d, and this program knows none after %d: a newer release of Spillway "+
				"has upgraded it, and there is no way back; run that release or a later one", v.Table.Name, newest, v.Newest())
		}
	}
	for i, step := range v.Steps {
		if !slices.Contains(s.Recorded, i+1) || !containsAll(s.Columns, step.Columns) {
			return v.Steps[i:], nil
		}
	}
	return nil, nil
}

// Base is the table at version 1: what a table that is found must be, at the least, before a step may change it.
func (v Versions) Base() Table {
	return Table{Name: v.Table.Name, Columns: v.Steps[0].Columns, Key: v.Table.Key}
}

// Complete tells whether a table with these columns can be used as it is, recorded or not.
func (v Versions) Complete(columns []string) bool { return containsAll(columns, v.Table.Columns) }

func containsAll(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

// Read returns the versions of the table whose files are in dir, one for each list of columns that a version adds, in the
// order of their names. It panics where the files are not as they must be: they are part of the program.
func Read(files fs.FS, dir, component, table string, key []string, added ...[]string) Versions {
	v := Versions{Component: component, Table: Table{Name: table, Key: key}}
	names, err := fs.Glob(files, dir+"/*.sql")
	if err != nil || len(names) != len(added) {
		panic(fmt.Sprintf("schema: %d files in %q for %d versions: %v", len(names), dir, len(added), err))
	}
	for i, name := range names {
		text, err := fs.ReadFile(files, name)
		if err == nil && !strings.HasPrefix(name, fmt.Sprintf("%s/%04d_", dir, i+1)) {
			err = fmt.Errorf("its name does not begin with version %04d", i+1)
		}
		var statements []string
		if err == nil {
			statements, err = Split(string(text))
		}
		if err != nil {
			panic(fmt.Sprintf("schema: %s: %v", name, err))
		}
		v.Steps = append(v.Steps, Step{File: name, Statements: statements, Columns: added[i]})
		v.Table.Columns = append(v.Table.Columns, added[i]...)
	}
	return v
}

// Split returns the statements of a file, for drivers that take one at a time. A statement ends with a semicolon at the
// end of a line, a comment is a line that begins with two hyphens, and nothing else is known of SQL.
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
