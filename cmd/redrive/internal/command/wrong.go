package command

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// firstOf returns the first error, of checks of one flag each.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// within wants a number from least to most.
func within(flag string, n, least, most int) error {
	switch {
	case n >= least && n <= most:
		return nil
	case n < least:
		return wrong("%s is %d: it must be at least %d", flag, n, least)
	}
	return wrong("%s is %d: it must be at most %d", flag, n, most)
}

func notNegative[N int | int64 | float64 | time.Duration](flag string, n N) error {
	if n >= 0 {
		return nil
	}
	return wrong("%s is %v: it must not be negative", flag, n)
}

// oneOf wants each value to be one of those that there are.
func oneOf(flag string, values, all []string) error {
	for _, value := range values {
		if !slices.Contains(all, value) {
			return wrong("%s is %q: use one of %s", flag, value, strings.Join(all, ", "))
		}
	}
	return nil
}

// errNoReason is the error of an action that does not say why.
var errNoReason = flagged(operate.CheckReason(""))

func notAllowed(to string) error {
	return wrong("--to is %q, which is not in --allow: add it there", to)
}

// check returns an error that names the flag whose value no campaign can have.
func (s *startFlags) check(chosen *choice, args []string) error {
	r := &s.request
	var wait, both, status, settings error
	if s := chosen.values()["status"]; len(s) > 0 && !slices.ContainsFunc(s, func(name string) bool {
		return name != string(letters.StatusDiscarded) && name != string(letters.StatusErased)
	}) {
		status = wrong("--status is %s: erased letters have no message any more", s[0])
		if slices.Contains(s, string(letters.StatusDiscarded)) {
			status = wrong("--status is discarded: discarded letters are not redriven; redrive restore lets them wait again")
		}
	}
	if r.CanaryWait <= 0 {
		wait = wrong("--canary-wait is %s: it must be more than 0", r.CanaryWait)
	}
	if r.To != "" && len(s.allow) > 0 && !slices.Contains(s.allow, r.To) {
		both = notAllowed(r.To)
	}
	if len(args) > 0 {
		other := chosen.values()
		if other.Del("status"); len(other) > 0 || s.all {
			both = wrong("SEQs and flags that choose letters are both given: give one; only --status may stand beside SEQs")
		}
	}
	if of := operate.CheckSettings(r); len(of) > 0 {
		settings = flagged(of[0])
	}
	if r.StopAt == 0 {
		settings = wrong("--stop-at is 0: it is a share, of more than 0 and at most 1; 1 is never")
	}
	return firstOf(both, status, settings, within("--stop-after", r.StopAfter, 1, math.MaxInt32),
		within("--concurrency", r.Concurrency, 1, operate.MaxConcurrency), wait)
}
