package classify_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// These are shaped like errors of HTTP clients, of the AWS SDK and of gRPC.
type (
	errHTTP  struct{ status int }
	errLater struct {
		errHTTP
		after time.Duration
	}
	errAWS    struct{ status int }
	errGRPC   struct{ status *grpcStatus }
	errValue  struct{ code grpcCode }
	errFaulty struct{}

	grpcStatus struct{ code grpcCode }
	grpcCode   uint32
)

func (e errHTTP) Error() string              { return fmt.Sprint("status ", e.status) }
func (e errHTTP) StatusCode() int            { return e.status }
func (e errLater) RetryAfter() time.Duration { return e.after }
func (e *errAWS) Error() string              { return fmt.Sprint("https response error StatusCode: ", e.status) }
func (e *errAWS) HTTPStatusCode() int        { return e.status }
func (e *errGRPC) Error() string             { return "rpc error" }
func (e *errGRPC) GRPCStatus() *grpcStatus   { return e.status }
func (s *grpcStatus) Code() grpcCode         { return s.code }
func (e errValue) Error() string             { return "code" }
func (e errValue) Code() grpcCode            { return e.code }
func (errFaulty) Error() string              { return "faulty" }
func (errFaulty) GRPCStatus() error          { panic("no status") }

// Features C4, C7: statuses of HTTP and gRPC that errors carry. A service that is overloaded or down, and says when to
// come back, is away.
func TestKnowledgeStatus(t *testing.T) {
	const T, U = classify.ClassTransient, classify.ClassUnknown
	for name, row := range map[string]struct {
		err  error
		want classify.Verdict
	}{
		"503, retry-after":    {errLater{errHTTP{503}, time.Minute}, classify.Verdict{Class: T, Away: true, RetryAfter: time.Minute}},
		"429, retry-after":    {errLater{errHTTP{429}, time.Second}, classify.Verdict{Class: T, Away: true, RetryAfter: time.Second}},
		"503":                 {errHTTP{503}, classify.Verdict{Class: T}},
		"503, no wait":        {errLater{errHTTP{503}, 0}, classify.Verdict{Class: T}},
		"AWS, throttled":      {&errAWS{429}, classify.Verdict{Class: T}},
		"502":                 {errHTTP{502}, classify.Verdict{Class: T}},
		"504":                 {&errAWS{504}, classify.Verdict{Class: T}},
		"500":                 {errHTTP{500}, classify.Verdict{Class: U}},
		"404":                 {errHTTP{404}, classify.Verdict{Class: U}},
		"unavailable":         {&errGRPC{&grpcStatus{14}}, classify.Verdict{Class: T, Away: true}},
		"deadline exceeded":   {&errGRPC{&grpcStatus{4}}, classify.Verdict{Class: T}},
		"resource exhausted":  {&errGRPC{&grpcStatus{8}}, classify.Verdict{Class: T}},
		"invalid argument":    {&errGRPC{&grpcStatus{3}}, classify.Verdict{Class: U}},
		"no status":           {&errGRPC{}, classify.Verdict{Class: U}},
		"nil":                 {(*errGRPC)(nil), classify.Verdict{Class: U}},
		"a code of another":   {errValue{14}, classify.Verdict{Class: U}},
		"panics":              {errFaulty{}, classify.Verdict{Class: U}},
		"marked":              {classify.Transient(&errGRPC{&grpcStatus{14}}), classify.Verdict{Class: T}},
		"mark with a wait":    {classify.With(&errGRPC{&grpcStatus{14}}, classify.RetryAfter(time.Hour)), classify.Verdict{Class: T, Away: true, RetryAfter: time.Hour}},
		"mark around a 503":   {classify.Away(errHTTP{503}, classify.RetryAfterHeader("7")), classify.Verdict{Class: T, Away: true, RetryAfter: 7 * time.Second}},
		"mark, no such value": {classify.Away(errHTTP{503}, classify.RetryAfterHeader("soon")), classify.Verdict{Class: T, Away: true}},
	} {
		for place, err := range map[string]error{"bare": row.err, "wrapped": wrap(row.err, 2)} {
			v := judge(err)
			testkit.Check(t, v == row.want, "%s, %s: %+v", name, place, v)
		}
	}
}

// Feature C2: the header Retry-After has seconds or a date. What it cannot have says nothing.
func TestRetryAfterHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where the time is midnight of 2000-01-01 UTC
		for value, want := range map[string]time.Duration{
			"120": 2 * time.Minute, " 5 ": 5 * time.Second, "0": 0, "": 0, "-3": 0, "1.5": 0, "soon": 0,
			"Sat, 01 Jan 2000 00:01:00 GMT": time.Minute, "Fri, 31 Dec 1999 23:59:59 GMT": 0, "Saturday, 01-Jan-00 00:00:30 GMT": 30 * time.Second,
			"18446744073709551616": 1 << 31 * time.Second, "9223372036854775807": 1 << 31 * time.Second,
		} {
			v := judge(classify.Away(errors.New("busy"), classify.RetryAfterHeader(value)))
			testkit.Equal(t, value, v.RetryAfter, want)
		}
	})
}
