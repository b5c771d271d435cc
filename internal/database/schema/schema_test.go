package schema

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// Feature I1: a table of the same name that is another is told apart by its columns and its key.
func TestCheck(t *testing.T) {
	keys := Table{Name: "keys", Key: []string{"b", "a"}, Versions: []Version{{Columns: []string{"a"}}, {Columns: []string{"b"}}}}
	for _, c := range []struct {
		columns, key []string
		want         string
	}{
		{[]string{"a", "b"}, []string{"b", "a"}, ""},
		{[]string{"b", "more", "a"}, []string{"b", "a"}, ""},
		{[]string{"b"}, []string{"b", "a"}, `table "keys" exists without column "a"`},
		{[]string{"a", "b"}, []string{"a", "b"}, `primary key (a, b) instead of (b, a)`},
		{[]string{"a", "b"}, nil, `primary key ()`},
	} {
		err := keys.Check(Found{Columns: c.columns, Key: c.key})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v %v: %v", c.columns, c.key, err)
		}
	}
	old := Found{Columns: []string{"a"}, Key: []string{"b", "a"}}
	if keys.CheckFirst(old) != nil || keys.Check(old) == nil || keys.Complete(old) {
		t.Error("a table of version 1 is not told from the newest")
	}
}

var growing = []Step{{File: "1", Columns: []string{"a"}}, {File: "2", Columns: []string{"b", "c"}}}

// Feature I1: a database gets the versions that it lacks, and those whose columns it lacks whatever is recorded.
func TestPending(t *testing.T) {
	for _, c := range []struct {
		columns, recorded, want string
	}{
		{"", "", "12"}, {"a", "", "12"}, {"a", "1", "2"}, {"ab", "1", "2"}, {"abc", "1", "2"}, {"abc", "", "12"},
		{"abc", "12", ""}, {"abcd", "21", ""}, {"ab", "12", "2"}, {"", "12", "12"}, {"abc", "2", "12"},
		{"abcd", "123", "none after 2"}, {"abcd", "3", "of version 3"}, {"", "3", "of version 3"},
	} {
		var recorded []int
		for _, digit := range c.recorded {
			recorded = append(recorded, int(digit-'0'))
		}
		steps, err := Table{Name: "keys"}.Pending(growing, Found{Columns: strings.Split(c.columns, "")}, recorded)
		got := ""
		for _, step := range steps {
			got += step.File
		}
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("columns %q, recorded %q: %q, want %q", c.columns, c.recorded, got, c.want)
		}
	}
}

// Feature I1: files are split at semicolons that end lines, without comments.
func TestSplit(t *testing.T) {
	got, err := Split("-- comment;\n\nCREATE a (\r\n\tb INT,\n  -- of b;\n\tc TEXT DEFAULT ';' -- no\n);  \nINSERT;\n-- end\n")
	want := []string{"CREATE a (\n\tb INT,\n\tc TEXT DEFAULT ';' -- no\n)", "INSERT"}
	if err != nil || strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"", "-- nothing;\n", "CREATE a", "CREATE a;\nINSERT"} {
		if got, err := Split(text); err == nil {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// Feature I1: a user's tool can run the files of each folder in the order of their names: they are numbered without a
// gap, and have the same names for each kind of database.
func TestFiles(t *testing.T) {
	var names []string
	for _, folder := range []string{"postgres", "mysql", "sqlite"} {
		entries, err := fs.ReadDir(Files(), folder)
		if err != nil || len(entries) == 0 {
			t.Fatalf("%d files: %v", len(entries), err)
		}
		var here []string
		for i, entry := range entries {
			here = append(here, entry.Name())
			if !strings.HasPrefix(entry.Name(), fmt.Sprintf("%04d_", i+1)) {
				t.Errorf("file %d of %s is %s", i+1, folder, entry.Name())
			}
			all, err := statements(Files(), folder+"/"+entry.Name())
			if err != nil || i > 0 && !strings.HasPrefix(all[len(all)-1], "INSERT INTO spillway_schema") {
				t.Errorf("%s/%s does not end with a record of its version: %v", folder, entry.Name(), err)
			}
		}
		if names == nil {
			names = here
		}
		if !slices.Equal(here, names) {
			t.Errorf("%s has %v, and others have %v", folder, here, names)
		}
	}
}

// Feature I1: a file that is not there, or has no end, is an error that names it.
func TestStepsRefuse(t *testing.T) {
	table := Table{Versions: []Version{{File: "0001_a.sql"}}, Files: fstest.MapFS{"sqlite/0001_a.sql": {Data: []byte("CREATE")}}}
	for _, folder := range []string{"sqlite", "mysql"} {
		if _, err := table.Steps(folder); err == nil || !strings.Contains(err.Error(), folder+"/0001_a.sql") {
			t.Error(err)
		}
	}
}
