// Package crashtest has what the tests of the demos share. A demo starts itself as its consumer, and in a test that is
// the test.
package crashtest

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
)

// Main is TestMain of a demo whose program is main.
func Main(m *testing.M, main func(), leaks ...goleak.Option) {
	if slices.Contains(os.Args, "-consume") {
		main()
		return
	}
	goleak.VerifyTestMain(m, leaks...)
}

// Run runs the program of a demo.
type Run func(context.Context, *crash.Plan) (webhooks.Result, error)

// Keeps says that run loses nothing and does nothing twice, and what plan.Topic became.
func (run Run) Keeps(t *testing.T, seed uint64, plan crash.Plan) (topic string) {
	t.Helper()
	plan.Seed = seed
	result, err := run(t.Context(), &plan)
	if err == nil {
		err = result.Check(60)
	}
	if err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	return plan.Topic
}

// Refuses says that run is refused with an error that says what to do, and shows no password.
func (run Run) Refuses(t *testing.T, plan crash.Plan, want string) {
	t.Helper()
	if _, err := run(t.Context(), &plan); err == nil || !strings.Contains(err.Error(), want) ||
		strings.Contains(err.Error(), "secret") {
		t.Errorf("%+v: %v; want %s", plan, err, want)
	}
}
