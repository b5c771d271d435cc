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

// row is a type of another module.
type row struct {
	module string // without the element of a major version; "" is any module: the type is known by name and fields
	majors []int  // for which the row was tested; 1 is a path without a major version
	folder string // of the package in its module, or ""
	name   string // of the type
}

// is reports whether t is the type. It notes a miss if the major version is unknown.
func (r *row) is(t reflect.Type) bool {
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
		note(r.String(), fmt.Sprintf("major version %d; known are %v", major, r.majors))
	}
	return true
}

func (r *row) String() string {
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

// view is a value of a row's type, behind its pointer. A field that is not there, or is of another kind, is a miss, and
// reads as its zero value.
type view struct {
	row    *row
	v      reflect.Value
	missed *string // the last miss, for a reader that must not go on without the field; or nil
}

// at returns the value of a field, which is not valid if the field is not there.
func (s view) at(path ...string) reflect.Value {
	v := s.v
	for _, name := range path {
		if v.Kind() != reflect.Struct {
			return reflect.Value{}
		}
		v = v.FieldByName(name)
	}
	return v
}

func (s view) field(ok func(reflect.Value) bool, path ...string) (reflect.Value, bool) {
	v := s.at(path...)
	if v.IsValid() && ok(v) {
		return v, true
	}
	name := strings.Join(path, ".")
	note(s.row.String(), "the field "+name)
	if s.missed != nil {
		*s.missed = name
	}
	return reflect.Value{}, false
}

func (s view) bool(path ...string) bool {
	v, ok := s.field(func(v reflect.Value) bool { return v.Kind() == reflect.Bool }, path...)
	return ok && v.Bool()
}

func (s view) string(path ...string) string {
	v, ok := s.field(func(v reflect.Value) bool { return v.Kind() == reflect.String }, path...)
	if !ok {
		return ""
	}
	return v.String()
}

func (s view) int(path ...string) int64 {
	v, ok := s.field(func(v reflect.Value) bool { return v.CanInt() || v.CanUint() }, path...)
	switch {
	case !ok:
		return 0
	case v.CanInt():
		return v.Int()
	}
	return int64(v.Uint())
}

func (s view) uint(path ...string) int64 {
	v, ok := s.field(reflect.Value.CanUint, path...)
	if !ok {
		return 0
	}
	return int64(v.Uint())
}

// duration reads a time.Duration, or what a *time.Duration points to.
func (s view) duration(path ...string) time.Duration {
	duration := reflect.TypeFor[time.Duration]()
	v, ok := s.field(func(v reflect.Value) bool {
		return v.Type() == duration || v.Type() == reflect.PointerTo(duration)
	}, path...)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if !ok || !v.IsValid() {
		return 0
	}
	return time.Duration(v.Int())
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

func note(of, what string) {
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
