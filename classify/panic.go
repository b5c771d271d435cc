package classify

import "github.com/watermill-spillway/spillway/internal/boundedtext"

// PanicError is a panic caught in a handler. It does not unwrap to the value: a panic is a bug, whatever was thrown,
// so neither marks nor rules for sentinels see through it. A rule As for *PanicError may still judge it.
type PanicError struct {
	// Value is what was passed to panic. After panic(nil) it is a *runtime.PanicNilError.
	Value any
	// Stack is the stack of the panicking goroutine, as runtime.Stack writes it, cut at 64 KiB.
	Stack []byte
}

// Error returns "panic: " and the text of the value, at most 4 KiB of it.
func (e *PanicError) Error() string {
	return "panic: " + boundedtext.Value(e.Value, 4<<10)
}
