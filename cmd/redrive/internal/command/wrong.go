package command

import (
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/redrive/campaigns"
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

// texts are names as texts.
func texts[S ~string](names []S) []string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = string(name)
	}
	return all
}

// What package campaigns accepts, for errors that name the flag.
const (
	leastRate       = 0.001
	mostConcurrency = 256
)

// speed wants a rate that a campaign can have.
func speed(name string, rate float64) error {
	if rate == 0 || rate >= leastRate && rate <= campaigns.MaxRate {
		return nil
	}
	return wrong("%s is %v letters per second: it must be %v to %.0f; 0 is no limit", name, rate, leastRate,
		float64(campaigns.MaxRate))
}

func notAllowed(to string) error {
	return wrong("--to is %q, which is not in --allow: add it there", to)
}

// check returns an error that names the flag whose value no campaign can have.
func (s *startFlags) check(chosen *choice, args []string) error {
	r := &s.request
	var share, wait, both, status error
	if s := chosen.values()["status"]; len(s) > 0 && !slices.ContainsFunc(s, func(name string) bool {
		return letters.Status(name).Redrivable()
	}) {
		status = wrong("--status is %s: erased letters have no message any more", s[0])
		if slices.Contains(s, string(letters.StatusDiscarded)) {
			status = wrong("--status is discarded: discarded letters are not redriven; redrive restore lets them wait again")
		}
	}
	if r.CanaryWait <= 0 {
		wait = wrong("--canary-wait is %s: it must be more than 0", r.CanaryWait)
	}
	if !(r.StopAt > 0 && r.StopAt <= 1) {
		share = wrong("--stop-at is %v: it is a share, of more than 0 and at most 1; 1 is never", r.StopAt)
	}
	if r.To != "" && r.FirstStage {
		both = wrong("--to and --first-stage are both given: give one")
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
	return firstOf(both, status, speed("--rate", r.Rate), notNegative("--max", r.Max), notNegative("--canary", r.Canary),
		share, within("--stop-after", r.StopAfter, 1, 1<<31-1), within("--concurrency", r.Concurrency, 1, mostConcurrency),
		wait, notNegative("--resume-after", r.ResumeAfter))
}
