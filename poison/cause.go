package poison

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"reflect"
	"runtime"
	"strconv"
	"strings"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/errs/causes"
	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
)

// maxText bounds what is taken from an error before the budget cuts it further.
const maxText = 64 << 10

func textOf(err error) string { return boundedtext.Error(err, maxText) }

// stackOf returns the stack of a panic, or the one that an error of github.com/pkg/errors carries.
func stackOf(err error) (stack string) {
	defer func() { _ = recover() }() // methods of the error are called
	if panicked, ok := causes.Find[*classify.PanicError](err); ok {
		return handlerFrames(panicFrames(string(panicked.Stack)))
	}
	return handlerFrames(carriedFrames(err))
}

// handlerFrames cuts a stack where Spillway's own frames begin, outside of the handler: they do not explain the cause
// and differ between attempts.
func handlerFrames(stack string) string {
	for from := 0; ; {
		i := strings.Index(stack[from:], "github.com/watermill-spillway/spillway")
		if i < 0 {
			return stack
		}
		from += i
		end := strings.IndexByte(stack[from:], '\n')
		if end < 0 {
			return stack
		}
		frame := stack[from : from+end]
		if lineStart := from == 0 || stack[from-1] == '\n'; lineStart && from > 0 &&
			(strings.Contains(frame, "Recover.step") || strings.Contains(frame, ".Enter.func")) {
			return stack[:from]
		}
		from += end
	}
}

// panicFrames drops the frames of the recovery itself: everything up to the innermost call of panic.
func panicFrames(stack string) string {
	const call = "\npanic("
	frames := stack
	for {
		i := strings.Index(frames, call)
		if i < 0 {
			break
		}
		frames = frames[i+1:]
	}
	if len(frames) < len(stack) {
		if below := nthLine(frames, 2); below != "" { // the call of panic and its place
			return below
		}
	}
	return nthLine(stack, 1) // "goroutine 1 [running]:"
}

func nthLine(s string, n int) string {
	for ; n > 0; n-- {
		_, rest, ok := strings.Cut(s, "\n")
		if !ok {
			return ""
		}
		s = rest
	}
	return s
}

// carriedFrames looks for the innermost StackTrace method that returns program counters, as the errors of
// github.com/pkg/errors have it, and writes the frames as a panic's stack is written.
func carriedFrames(err error) string {
	var counters []uintptr
	for depth := 0; err != nil && depth < 64; depth++ {
		if method := reflect.ValueOf(err).MethodByName("StackTrace"); method.IsValid() && method.Type().NumIn() == 0 &&
			method.Type().NumOut() == 1 {
			if trace := method.Call(nil)[0]; trace.Kind() == reflect.Slice &&
				trace.Type().Elem().Kind() == reflect.Uintptr {
				counters = counters[:0]
				for i := range min(trace.Len(), 64) {
					counters = append(counters, uintptr(trace.Index(i).Uint()))
				}
			}
		}
		err = errors.Unwrap(err)
	}
	if len(counters) == 0 {
		return ""
	}
	var b strings.Builder
	frames := runtime.CallersFrames(counters)
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		b.WriteString(frame.Function + "(...)\n\t" + frame.File + ":" + strconv.Itoa(frame.Line) + "\n")
	}
	return b.String()
}

// hashStack hashes the functions and lines of a stack and leaves out what differs between two runs: arguments,
// addresses, goroutine ids.
func hashStack(stack string) string {
	if stack == "" {
		return ""
	}
	frames := make([]byte, 0, len(stack))
	for len(stack) > 0 {
		line, rest, _ := strings.Cut(stack, "\n")
		stack = rest
		if strings.HasPrefix(line, "\t") {
			line = before(line, strings.LastIndex(line, " +0x"))
		} else {
			line = before(line, strings.Index(line, " in goroutine "))
			line = before(line, strings.LastIndexByte(line, '('))
		}
		frames = append(append(frames, line...), '\n')
	}
	sum := sha256.Sum256(frames)
	return hex.EncodeToString(sum[:8])
}

func before(line string, i int) string {
	if i > 0 {
		return line[:i]
	}
	return line
}
