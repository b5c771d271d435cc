package classify

import "github.com/watermill-spillway/spillway/internal/foreign"

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
