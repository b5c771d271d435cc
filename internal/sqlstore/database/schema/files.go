package schema

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

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
