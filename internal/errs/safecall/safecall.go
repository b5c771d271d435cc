// Package safecall calls the functions of users (hooks, naming functions, publishers). A panic in them becomes an
// error, and does not end the message.
package safecall

import (
	"fmt"
	"reflect"
	"runtime"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/logging"
)

// Call calls f. If f panics, Call returns a *classify.PanicError wrapped with name.
func Call(name string, f func() error) (err error) {
	returned := false
	defer func() {
		if v := recover(); !returned { // v can be nil with GODEBUG=panicnil=1
			err = fmt.Errorf("%s: %w", name, Panicked(v))
		}
	}()
	err = f()
	returned = true
	return err
}

// Hook calls f and logs its panic.
func Hook(logger watermill.LoggerAdapter, name string, f func()) {
	if err := Call(name, func() error { f(); return nil }); err != nil {
		logging.HookPanicked.Write(logger, err, logging.Fields{logging.Hook: name})
	}
}

// IsNil reports whether v is nil, or an interface that holds a nil pointer, which is not equal to nil.
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

// Panicked returns the error for a recovered value. It takes the stack, so it is called in the deferred function that
// recovered.
func Panicked(value any) *classify.PanicError {
	stack := make([]byte, 64<<10)
	return &classify.PanicError{Value: value, Stack: stack[:runtime.Stack(stack, false)]}
}
