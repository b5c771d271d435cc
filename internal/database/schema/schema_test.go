package schema

import (
	"strings"
	"testing"
)

// Feature I1: a table of the same name that is another is told apart by its columns and its key.
func TestCheck(t *testing.T) {
	keys := Table{Name: "keys", Columns: []string{"a", "b"}, Key: []string{"b", "a"}}
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
		err := keys.Check(c.columns, c.key)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v %v: %v", c.columns, c.key, err)
		}
	}
}
