package classify

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
)

// Failure records the failed attempts of a message. It is returned up the chain as an error: a retry adds attempts, a
// poison.Queue reads it. A Failure inside another error counts as a mark.
type Failure struct {
	// Err is the error of the latest attempt.
	Err error
	// Verdict is what is known of Err.
	Verdict Verdict
	// Attempts counts the handler invocations.
	Attempts int
	// First and Last are the times of the first and the latest failure.
	First, Last time.Time
	// History holds the latest attempts, oldest first, at most 10.
	History []Attempt
}

// Attempt is one failed handler invocation.
type Attempt struct {
	At    time.Time
	Class Class
	// Error is the head of the error's text, at most 256 bytes.
	Error string
}

// Error returns the text of the latest error with the class and the number of attempts, at most 4 KiB of it.
func (f *Failure) Error() string {
	return fmt.Sprintf("%s after %d attempt(s): %s", f.Verdict.Class, f.Attempts, boundedtext.Error(f.Err, 4<<10))
}

// Unwrap returns the error of the latest attempt.
func (f *Failure) Unwrap() error { return f.Err }

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

// nilTx says what to do about a panic of a handler that used a nil *sql.Tx. For any other panic it is "".
func (e *PanicError) nilTx() string {
	if _, ok := e.Value.(runtime.Error); !ok {
		return ""
	}
	_, after, _ := strings.Cut(string(e.Stack), "\npanic(")
	lines := strings.SplitN(after, "\n", 12)
	for i := 2; i < len(lines); i += 2 { // behind "panic" and its file a function and its file, and so on
		switch name := lines[i]; {
		case strings.HasPrefix(name, "database/sql.(*Tx)."):
			return e.Error() + ": the handler used a *sql.Tx that is nil. idempotency.Tx returns nil if there is no receiver of " +
				"keys, or one with ReceiverConfig.Lease: set Config.DB, or leave Lease out"
		case !strings.HasPrefix(name, "sync"):
			return ""
		}
	}
	return ""
}
