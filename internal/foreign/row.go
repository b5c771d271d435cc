package foreign

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
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
	row *row
	v   reflect.Value
}

func (s view) field(ok func(reflect.Value) bool, path ...string) (reflect.Value, bool) {
	v := s.v
	for _, name := range path {
		if v.Kind() != reflect.Struct {
			v = reflect.Value{}
			break
		}
		v = v.FieldByName(name)
	}
	if !v.IsValid() || !ok(v) {
		note(s.row.String(), "the field "+strings.Join(path, "."))
		return reflect.Value{}, false
	}
	return v, true
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
