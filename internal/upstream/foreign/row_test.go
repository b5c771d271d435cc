package foreign

import (
	"reflect"
	"testing"
)

type settings struct {
	config struct{ On bool }
	Name   int
}

// A row holds for any major version of its module, and for no other package. A version that it does not name is a miss,
// once.
func TestRowOfVersions(t *testing.T) {
	const here = "github.com/watermill-spillway/spillway"
	of := reflect.TypeFor[settings]()
	for name, c := range map[string]struct {
		row    Row
		is     bool
		misses int
	}{
		"known":            {RowOf(here, "internal/upstream/foreign", "settings", 1), true, 0},
		"another major":    {RowOf(here, "internal/upstream/foreign", "settings", 2, 3), true, 1},
		"another type":     {RowOf(here, "internal/upstream/foreign", "setting", 1), false, 0},
		"another package":  {RowOf(here, "internal", "settings", 1), false, 0},
		"another module":   {RowOf(here[:len(here)-1], "internal/upstream/foreign", "settings", 1), false, 0},
		"of any module":    {RowOf("", "", "settings"), true, 0},
		"module is longer": {RowOf(here+"/internal/foreign/more", "", "settings", 1), false, 0},
	} {
		for i := range 2 {
			if is := c.row.Is(of); is != c.is {
				t.Errorf("%s: %t", name, is)
			}
			if misses := Take(); len(misses) != c.misses*(1-i) {
				t.Errorf("%s, call %d: %v", name, i, misses)
			}
		}
	}
	for element, want := range map[string]int{"v2": 2, "v12": 12, "v": 0, "vnext": 0, "pkg": 0, "v0x": 0, "v9999": 0} {
		if got := majorOf(element); got != want {
			t.Errorf("%s: %d", element, got)
		}
	}
}

// A field that is not there, or of another kind, reads as its zero value, and is a miss.
func TestFieldsOfAnotherShape(t *testing.T) {
	s := settings{Name: 7}
	s.config.On = true
	row := RowOf("module", "", "settings")
	v := View{Row: &row, Value: reflect.ValueOf(&s).Elem()}
	if !v.Bool("config", "On") || v.Int("Name") != 7 || len(Take()) != 0 {
		t.Error("what is there was not read")
	}
	if v.Bool("config", "Off") || v.Bool("Name") || v.Text("Name") != "" || v.Duration("Name") != 0 || v.Int("Name", "x") != 0 {
		t.Error("read what is not there")
	}
	if misses := Take(); len(misses) != 3 { // each field once
		t.Error(misses)
	}
}
