package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// The exit codes. They are promised: redrive help exit-codes lists them.
const (
	exitDone        = 0
	exitFailed      = 1
	exitWrong       = 2
	exitNone        = 3
	exitDeclined    = 4
	exitPartly      = 5
	exitInterrupted = 130
)

const exitCodes = `Exit codes:

  0    everything that was asked for is done
  1    it failed: the database or the broker is unavailable, a right is missing
  2    the command line is wrong: an unknown flag, a value that cannot be
  3    nothing was found to work on: no letter, cause or campaign is chosen (a list of nothing ends with 0)
  4    nothing was done: the question was not answered with yes
  5    done in part: some letters were refused, or doctor found a fault
  130  interrupted by Ctrl-C or SIGTERM; what was done is done`

// coded is an error with an exit code of its own.
type coded struct {
	error
	code int
}

func (c coded) Unwrap() error { return c.error }

func wrong(format string, args ...any) error { return coded{fmt.Errorf(format, args...), exitWrong} }
func none(format string, args ...any) error  { return coded{fmt.Errorf(format, args...), exitNone} }
func partly(format string, args ...any) error {
	return coded{fmt.Errorf(format, args...), exitPartly}
}

// exitCode is what the process ends with.
func exitCode(ctx context.Context, err error) int {
	var c coded
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &c):
		return c.code
	case errors.Is(err, campaigns.ErrNoLetters), errors.Is(err, inside.ErrNoPolicy):
		return exitNone
	case errors.Is(err, campaigns.ErrRequest):
		return exitWrong
	case errors.Is(err, screen.ErrDeclined), errors.Is(err, screen.ErrNotAsked):
		return exitDeclined
	case ctx.Err() != nil:
		return exitInterrupted
	}
	return exitFailed
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
func oneOf(flag, value string, all []string) error {
	if slices.Contains(all, value) {
		return nil
	}
	return wrong("%s is %q: use one of %s", flag, value, strings.Join(all, ", "))
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
	return cmp.Or(both, status, settings, within("--stop-after", r.StopAfter, 1, math.MaxInt32),
		within("--concurrency", r.Concurrency, 1, operate.MaxConcurrency), wait)
}
