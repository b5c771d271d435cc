package foreign

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Row is a type of another module.
type Row struct {
	module string // without the element of a major version; "" is any module: the type is known by name and fields
	majors []int  // for which the row was tested; 1 is a path without a major version
	folder string // of the package in its module, or ""
	name   string // of the type
}

// RowOf returns the row of a type, which the given major versions of its module have.
func RowOf(module, folder, name string, majors ...int) Row { return Row{module, majors, folder, name} }

// Is reports whether t is the type. It notes a miss if the major version is unknown.
func (r *Row) Is(t reflect.Type) bool {
	if t.Name() != r.name {
		return false
	}
	if r.module == "" {
		return true
	}
	path := t.PkgPath()
	if _, vendored, ok := strings.Cut(path, "/vendor/"); ok {
		path = vendored
	}
	rest, ok := strings.CutPrefix(path, r.module)
	if !ok {
		return false
	}
	major, folder := 1, rest
	if element, below, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/"); rest != "" {
		if n := majorOf(element); n > 1 {
			major, folder = n, ""
			if below != "" {
				folder = "/" + below
			}
		}
	}
	if strings.TrimPrefix(folder, "/") != r.folder || folder != "" && folder[0] != '/' {
		return false
	}
	if !slices.Contains(r.majors, major) {
		Note(r.String(), fmt.Sprintf("major version %d; known are %v", major, r.majors))
	}
	return true
}

func (r *Row) String() string {
	path := r.module
	if r.folder != "" {
		path += "/" + r.folder
	}
	return path + "." + r.name
}

// majorOf returns the number of an element such as v2, or 0.
func majorOf(element string) (n int) {
	if len(element) < 2 || len(element) > 4 || element[0] != 'v' {
		return 0
	}
	for _, digit := range element[1:] {
		if digit < '0' || digit > '9' {
			return 0
		}
		n = 10*n + int(digit-'0')
	}
	return n
}

// View is a value of a row's type, behind its pointer. A field that is not there, or is of another kind, is a miss, and
// reads as its zero value.
type View struct {
	Row    *Row
	Value  reflect.Value
	Missed *string // the last miss, for a reader that must not go on without the field; or nil
}

// At returns the value of a field, which is not valid if the field is not there.
func (v View) At(path ...string) reflect.Value {
	at := v.Value
	for _, name := range path {
		if at.Kind() != reflect.Struct {
			return reflect.Value{}
		}
		at = at.FieldByName(name)
	}
	return at
}

// Field returns the value of a field that is as ok says.
func (v View) Field(ok func(reflect.Value) bool, path ...string) (reflect.Value, bool) {
	at := v.At(path...)
	if at.IsValid() && ok(at) {
		return at, true
	}
	name := strings.Join(path, ".")
	Note(v.Row.String(), "the field "+name)
	if v.Missed != nil {
		*v.Missed = name
	}
	return reflect.Value{}, false
}

// Of returns a test for values of a kind.
func Of(kind reflect.Kind) func(reflect.Value) bool {
	return func(v reflect.Value) bool { return v.Kind() == kind }
}

// Bool reads a bool.
func (v View) Bool(path ...string) bool {
	at, ok := v.Field(Of(reflect.Bool), path...)
	return ok && at.Bool()
}

// Text reads a string.
func (v View) Text(path ...string) string {
	at, ok := v.Field(Of(reflect.String), path...)
	if !ok {
		return ""
	}
	return at.String()
}

// Int reads a number with or without a sign.
func (v View) Int(path ...string) int64 {
	at, ok := v.Field(func(v reflect.Value) bool { return v.CanInt() || v.CanUint() }, path...)
	switch {
	case !ok:
		return 0
	case at.CanInt():
		return at.Int()
	}
	return int64(at.Uint())
}

// Duration reads a time.Duration, or what a *time.Duration points to.
func (v View) Duration(path ...string) time.Duration {
	duration := reflect.TypeFor[time.Duration]()
	at, ok := v.Field(func(v reflect.Value) bool {
		return v.Type() == duration || v.Type() == reflect.PointerTo(duration)
	}, path...)
	if at.Kind() == reflect.Pointer {
		at = at.Elem()
	}
	if !ok || !at.IsValid() {
		return 0
	}
	return time.Duration(at.Int())
}

// Miss is something of another module that is not as the library knows it.
type Miss struct {
	Of   string // a type, or what is done with it
	What string // that is unknown
}

var misses struct {
	mu    sync.Mutex
	noted map[Miss]bool
	open  []Miss // not yet taken
	any   atomic.Bool
}

// maxMisses bounds what is remembered.
const maxMisses = 256

// Note keeps something of another module that is not as the library knows it, until Take returns it.
func Note(of, what string) {
	misses.mu.Lock()
	defer misses.mu.Unlock()
	m := Miss{of, what}
	if misses.noted[m] || len(misses.noted) >= maxMisses {
		return
	}
	if misses.noted == nil {
		misses.noted = map[Miss]bool{}
	}
	misses.noted[m] = true
	misses.open = append(misses.open, m)
	misses.any.Store(true)
}

// Take returns the misses that no earlier call has returned. Each miss is returned once in a process.
func Take() []Miss {
	if !misses.any.Load() {
		return nil
	}
	misses.mu.Lock()
	defer misses.mu.Unlock()
	taken := misses.open
	misses.open = nil
	misses.any.Store(false)
	return taken
}
