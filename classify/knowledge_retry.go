package classify

import "github.com/watermill-spillway/spillway/internal/foreign"

// askRetry judges what libraries for retries, breakers and limits say, without importing one.
func askRetry(err error) (Verdict, bool) {
	switch e := foreign.ErrorOf(err); e.Kind {
	case foreign.Plain:
		return transient, refusals[err.Error()]
	case foreign.Permanent:
		return permanent, true
	case foreign.RetryAfter:
		return Verdict{Class: ClassTransient, RetryAfter: e.Wait()}, true
	}
	return Verdict{}, false
}

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
