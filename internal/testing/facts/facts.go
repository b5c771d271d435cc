// Package facts proves rows of package foreign: a test meets the real type of each.
package facts

import (
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

// notRequired are modules that examples does not require either: the clients of two clouds, and one in C.
var notRequired = []string{"github.com/ThreeDotsLabs/watermill-googlecloud/", "github.com/ThreeDotsLabs/watermill-aws/",
	"github.com/mattn/go-sqlite3."}

// Facts are rows, and which of them have been met.
type Facts struct {
	rows []*foreign.Row
	met  map[string]bool
}

// Of returns the facts of a package's rows.
func Of(rows ...*foreign.Row) *Facts { return &Facts{rows, map[string]bool{}} }

// Met notes that the real type has been judged, and fails for a miss.
func (f *Facts) Met(t *testing.T, of any, known bool) {
	t.Helper()
	v := reflect.Indirect(reflect.ValueOf(of))
	name := strings.TrimPrefix(v.Type().PkgPath(), "vendor/") + "." + v.Type().Name()
	for _, miss := range foreign.Take() {
		t.Errorf("%s has changed: %s. Look at the new version, and correct its row", miss.Of, miss.What)
	}
	if !known {
		t.Errorf("%s is not known any more: look for its new name, and correct its row", name)
	}
	for _, r := range f.rows {
		if r.Is(v.Type()) {
			f.met[r.String()] = true
		}
	}
}

// Check fails for a row whose real type no test has met. Rows of modules that the library does not require are met by
// tests in lab/proofs/foreign.
func (f *Facts) Check(t *testing.T) {
	t.Helper()
	elsewhere := Elsewhere(t)
rows:
	for _, r := range f.rows {
		for _, module := range notRequired {
			if strings.HasPrefix(r.String(), module) {
				continue rows
			}
		}
		if !f.met[r.String()] && !strings.Contains(elsewhere, `"`+r.String()+`"`) {
			t.Errorf("no test meets %s", r)
		}
	}
}

// Elsewhere returns the source of the tests that meet types of modules which the library does not require.
func Elsewhere(t *testing.T) string {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(here), "../../../lab/proofs/foreign/facts_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
