package classify

import (
	"errors"
	"reflect"
	"strings"
	"time"
)

// askRetry judges what libraries for retries, breakers and limits say, without importing one.
func askRetry(err error) (Verdict, bool) {
	t := reflect.TypeOf(err)
	if t == plainError {
		return transient, refusals[err.Error()]
	}
	v := reflect.ValueOf(err)
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return Verdict{}, false
		}
		t, v = t.Elem(), v.Elem()
	}
	if !strings.Contains("/"+t.PkgPath(), "/cenkalti/backoff/") || v.Kind() != reflect.Struct {
		return Verdict{}, false
	}
	switch t.Name() {
	case "PermanentError": // of every version; Watermill's Retry heeds that of v4
		return permanent, true
	case "RetryAfterError": // of v5
		if after, ok := v.FieldByName("Duration").Interface().(time.Duration); ok {
			return Verdict{Class: ClassTransient, RetryAfter: after}, true
		}
	}
	return Verdict{}, false
}

// plainError is the type of what errors.New returns: such a sentinel has nothing but its text to be known by.
var plainError = reflect.TypeOf(errors.New(""))

// refusals are the texts of sentinels that pass with time: a breaker or limiter refuses a call, or a connection was
// lost.
var refusals = map[string]bool{
	"circuit breaker is open": true, // sony/gobreaker v1 and v2, so Watermill's CircuitBreaker; eapache/go-resiliency
	"too many requests":       true, // sony/gobreaker, half open
	"circuit breaker open":    true, // failsafe-go, mercari/go-circuitbreaker
	"bulkhead full":           true, // failsafe-go
	"rate limit exceeded":     true, // failsafe-go
	"timeout exceeded":        true, // failsafe-go
	"invalid connection":      true, // go-sql-driver/mysql: lost under a request
}
