// Package errorkind names what errors have in common whatever their texts say: the types of an error and its causes,
// and their codes.
package errorkind

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/watermill-spillway/spillway/internal/errs/causes"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
)

const (
	// maxDepth bounds how many causes are looked at.
	maxDepth = 16
	// maxKind bounds the text of a kind.
	maxKind = 300
)

// Types names the types of err and its first causes, outermost first. It leaves out the wrappers of fmt, and the marks
// and failures of package classify.
func Types(err error) string { return chain(err, func(error) string { return "" }) }

// Of returns the kind of err: its types, each with the code that it has. A code is a number, or the five characters of
// a SQLSTATE, so no text of a message is in it.
func Of(err error) string { return boundedtext.Text(chain(err, code), maxKind) }

func chain(err error, also func(error) string) string {
	var b strings.Builder
	depth := 0
	for one := range causes.First(err) {
		if depth++; depth > maxDepth {
			break
		}
		name := reflect.TypeOf(one).String()
		if !strings.HasPrefix(name, "*fmt.wrapError") && name != "*classify.marked" && name != "*classify.Failure" {
			if b.Len() > 0 {
				b.WriteString(" > ")
			}
			b.WriteString(name + also(one))
		}
	}
	return b.String()
}

// code returns the code of one error, in parentheses, or "".
func code(err error) (text string) {
	defer func() { _ = recover() }() // methods of the error are called
	switch e := err.(type) {
	case interface{ SQLState() string }:
		if state := e.SQLState(); len(state) == 5 {
			return fmt.Sprintf("(%q)", state)
		}
		return ""
	case interface{ StatusCode() int }:
		return fmt.Sprintf("(%d)", e.StatusCode())
	case interface{ HTTPStatusCode() int }: // of the AWS SDK, among others
		return fmt.Sprintf("(%d)", e.HTTPStatusCode())
	}
	v := reflect.ValueOf(err)
	if status := v.MethodByName("GRPCStatus"); status.IsValid() {
		return number(status.Call(nil)[0].MethodByName("Code").Call(nil)[0])
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return number(v)
	}
	for _, field := range [...]string{"Number", "Code"} { // of MySQL, of AMQP and others
		if text := number(v.FieldByName(field)); text != "" {
			return text
		}
	}
	return ""
}

func number(v reflect.Value) string {
	switch {
	case !v.IsValid():
		return ""
	case v.CanInt():
		return fmt.Sprintf("(%d)", v.Int())
	case v.CanUint():
		return fmt.Sprintf("(%d)", v.Uint())
	}
	return ""
}
