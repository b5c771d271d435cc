// Package safecall runs what users plug in (hooks, naming functions, publishers) so that a panic there is an error and a
// line in the log, and never the end of a message.
package safecall

import (
	"fmt"
	"reflect"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/classify"
)

// Call runs f and returns its panic, if any, as a *classify.PanicError wrapped with name.
func Call(name string, f func() error) (err error) {
	returned := false
	defer func() {
		if v := recover(); !returned { // not v != nil: with GODEBUG=panicnil=1 a panic would read as success
			err = fmt.Errorf("%s: %w", name, classify.NewPanicError(v))
		}
	}()
	err = f()
	returned = true
	return err
}

// Hook runs f and logs its panic, if any.
func Hook(logger watermill.LoggerAdapter, name string, f func()) {
	if err := Call(name, func() error { f(); return nil }); err != nil {
		logger.Error("A hook panicked; the message goes on without it", err, watermill.LogFields{"hook": name})
	}
}

// IsNil tells whether v is nil or an interface that holds a nil pointer, which a comparison with nil does not see.
func IsNil(v any) bool {
	if v == nil {
		return true
	}
	switch rv := reflect.ValueOf(v); rv.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Chan, reflect.Slice, reflect.Interface:
		return rv.IsNil()
	}
	return false
}
