package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/watermill-spillway/spillway/cmd/redrive/internal/screen"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
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
  1    it failed: the database or the broker is away, a right is missing
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
	case errors.Is(err, campaigns.ErrRequest):
		return exitWrong
	case errors.Is(err, screen.ErrDeclined), errors.Is(err, screen.ErrNotAsked):
		return exitDeclined
	case ctx.Err() != nil:
		return exitInterrupted
	}
	return exitFailed
}
