package schema

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature I1: files are split at semicolons that end lines, without comments.
func TestSplit(t *testing.T) {
	got, err := Split("-- comment;\n\nCREATE a (\r\n\tb INT,\n  -- of b;\n\tc TEXT DEFAULT ';' -- no\n);  \nINSERT;\n-- end\n")
	want := []string{"CREATE a (\n\tb INT,\n\tc TEXT DEFAULT ';' -- no\n)", "INSERT"}
	testkit.Check(t, err == nil && strings.Join(got, "|") == strings.Join(want, "|"), "%q, %v", got, err)
	for _, text := range []string{"", "-- nothing;\n", "CREATE a", "CREATE a;\nINSERT"} {
		testkit.Check(t, testkit.Err(Split(text)) != nil, "%q is split", text)
	}
}

// Feature I1: a user's tool can run the files of each folder in the order of their names: they are numbered without a
// gap, and have the same names for each kind of database.
func TestFiles(t *testing.T) {
	var names []string
	for _, folder := range []string{"postgres", "mysql", "sqlite"} {
		entries, err := fs.ReadDir(Files(), folder)
		testkit.Require(t, err == nil && len(entries) != 0, "%d files: %v", len(entries), err)
		var here []string
		for i, entry := range entries {
			here = append(here, entry.Name())
			testkit.Check(t, strings.HasPrefix(entry.Name(), fmt.Sprintf("%04d_", i+1)),
				"file %d of %s is %s", i+1, folder, entry.Name())
			all, err := statements(Files(), folder+"/"+entry.Name())
			testkit.NoError(t, err)
			testkit.Check(t, i == 0 || strings.HasPrefix(all[len(all)-1], "INSERT INTO spillway_schema"),
				"%s/%s does not end with a record of its version", folder, entry.Name())
		}
		if names == nil {
			names = here
		}
		testkit.Check(t, slices.Equal(here, names), "%s has %v, and others have %v", folder, here, names)
	}
}

// Feature I1: a file that is not there, or has no end, is an error that names it.
func TestStepsRefuse(t *testing.T) {
	table := Table{Versions: []Version{{File: "0001_a.sql"}}, Files: fstest.MapFS{"sqlite/0001_a.sql": {Data: []byte("CREATE")}}}
	for _, folder := range []string{"sqlite", "mysql"} {
		testkit.Says(t, testkit.Err(table.Steps(folder)), folder+"/0001_a.sql")
	}
}
