package schema

import (
	"strings"
	"testing"
	"testing/fstest"
)

var growing = Versions{Component: "keys", Table: Table{Name: "keys", Columns: []string{"a", "b", "c"}, Key: []string{"a"}}, Steps: []Step{
	{File: "1", Columns: []string{"a"}}, {File: "2", Columns: []string{"b", "c"}},
}}

// Feature I1: a database gets the versions that it lacks, and those whose columns it lacks whatever is recorded.
func TestPending(t *testing.T) {
	for _, c := range []struct {
		columns, recorded, want string
	}{
		{"", "", "12"}, {"a", "", "12"}, {"a", "1", "2"}, {"ab", "1", "2"}, {"abc", "1", "2"}, {"abc", "", "12"},
		{"abc", "12", ""}, {"abcd", "21", ""}, {"ab", "12", "2"}, {"", "12", "12"}, {"abc", "2", "12"},
		{"abcd", "123", "none after 2"}, {"abcd", "3", "of version 3"}, {"", "3", "of version 3"},
	} {
		state := State{Columns: strings.Split(c.columns, "")}
		for _, digit := range c.recorded {
			state.Recorded = append(state.Recorded, int(digit-'0'))
		}
		steps, err := growing.Pending(state)
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

// Feature I1: the files of a folder are the versions of a table; files that cannot be are noticed when a program starts.
func TestRead(t *testing.T) {
	files := fstest.MapFS{"x/0001_a.sql": {Data: []byte("ONE;")}, "x/0002_b.sql": {Data: []byte("TWO;\nTHREE;")}, "x/readme": {}}
	v := Read(files, "x", "keys", "t", []string{"a"}, []string{"a"}, []string{"b"})
	if v.Newest() != 2 || len(v.Steps[1].Statements) != 2 || v.Steps[1].File != "x/0002_b.sql" || !v.Complete([]string{"b", "a"}) || v.Complete([]string{"b"}) {
		t.Errorf("%+v", v)
	}
	if err := v.Base().Check([]string{"a"}, []string{"a"}); err != nil {
		t.Error(err)
	}
	for name, bad := range map[string]fstest.MapFS{
		"one is missing":  {"x/0001_a.sql": {Data: []byte("ONE;")}},
		"a gap":           {"x/0001_a.sql": {Data: []byte("ONE;")}, "x/0003_b.sql": {Data: []byte("TWO;")}},
		"no end to it":    {"x/0001_a.sql": {Data: []byte("ONE;")}, "x/0002_b.sql": {Data: []byte("TWO")}},
		"another's order": {"x/0001_a.sql": {Data: []byte("ONE;")}, "x/0001_b.sql": {Data: []byte("TWO;")}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			Read(bad, "x", "keys", "t", []string{"a"}, []string{"a"}, []string{"b"})
		}()
	}
}
