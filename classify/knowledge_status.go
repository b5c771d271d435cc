package classify

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

// askStatus judges errors that carry the status of an answer: of HTTP by their methods, and of gRPC without importing
// it.
func askStatus(err error) (Verdict, bool) {
	switch e := err.(type) {
	case interface{ StatusCode() int }:
		return askHTTP(e.StatusCode(), err)
	case interface{ HTTPStatusCode() int }: // of the AWS SDK, among others
		return askHTTP(e.HTTPStatusCode(), err)
	}
	v := reflect.ValueOf(err)
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return Verdict{}, false
	}
	// The names of methods must be constants: for others the linker keeps all methods of the program.
	if status, ok := result(v.MethodByName("GRPCStatus")); ok {
		code, _ := result(status.MethodByName("Code"))
		return askGRPC(code)
	}
	if foreign.ErrorOf(err).Kind == foreign.RPC {
		code, _ := result(v.MethodByName("Code"))
		return askGRPC(code)
	}
	return Verdict{}, false
}

// askHTTP judges the status codes of RFC 9110 and RFC 6585 that pass with time. One that says when to come back is
// about the service.
func askHTTP(status int, err error) (Verdict, bool) {
	switch status {
	case 429, 503:
		if e, ok := err.(interface{ RetryAfter() time.Duration }); ok && e.RetryAfter() > 0 {
			return Verdict{Class: ClassTransient, RetryAfter: e.RetryAfter(), Away: true}, true
		}
		return transient, true
	case 408, 425, 502, 504:
		return transient, true
	}
	return Verdict{}, false
}

// askGRPC judges a status code of gRPC (google.golang.org/grpc/codes).
func askGRPC(code reflect.Value) (Verdict, bool) {
	if !code.IsValid() || !code.CanUint() { // a Value without a code is not valid
		return Verdict{}, false
	}
	switch code.Uint() {
	case 14: // unavailable
		return away, true
	case 1, 4, 8, 10: // cancelled, deadline exceeded, resource exhausted, aborted
		return transient, true
	}
	return Verdict{}, false
}

// result calls a method without arguments that has one result. It reports false if there is no such method.
func result(method reflect.Value) (reflect.Value, bool) {
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
		return reflect.Value{}, false
	}
	v := method.Call(nil)[0]
	return v, !(v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) || !v.IsNil()
}

// maxHeader bounds a Retry-After header: more seconds than a Duration holds are as good as this many.
const maxHeader = 1 << 31

// parseRetryAfter reads a Retry-After header (RFC 9110, 10.2.3), and returns 0 if it says nothing.
func parseRetryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, maxHeader)) * time.Second
	}
	// as http.ParseTime does
	for _, layout := range []string{"Mon, 02 Jan 2006 15:04:05 GMT", time.RFC850, time.ANSIC} {
		if at, err := time.Parse(layout, value); err == nil {
			return max(at.Sub(now), 0)
		}
	}
	return 0
}

// askRetry judges what libraries for retries, breakers and limits say, without importing one.
func askRetry(err error) (Verdict, bool) {
	switch e := foreign.ErrorOf(err); e.Kind {
	case foreign.Plain:
		return transient, foreign.Says(err.Error(), foreign.Passes)
	case foreign.Permanent:
		return permanent, true
	case foreign.RetryAfter:
		return Verdict{Class: ClassTransient, RetryAfter: e.Wait()}, true
	}
	return Verdict{}, false
}
