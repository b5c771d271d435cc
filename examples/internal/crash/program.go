package crash

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
)

// Main is an example's main: the parent, which calls run, or with -consume the consumer that it starts. Flags of the
// example's own are defined before.
func Main(name string, consume func(context.Context, *Consumer) error,
	run func(context.Context, *Plan) (webhooks.Result, error)) {
	var plan Plan
	flag.StringVar(&plan.Input, "input", "", "file of events, a line {\"event\": name, \"payload\": {...}} each "+
		"(default: 60 that are built in)")
	flag.Uint64Var(&plan.Seed, "seed", 1, "seed of the faults")
	flag.IntVar(&plan.Kills, "kills", 1, "how often the consumer is killed")
	flag.IntVar(&plan.KillAt, "kill-at", 0, "kill the consumer each time so many more events are stored (default: a "+
		"third of them, where it is killed once)")
	consumer := flag.Bool("consume", false, "be the consumer; the example starts itself so")
	flag.Parse()
	if flag.NArg() > 0 {
		fail(name, fmt.Errorf("unknown argument %q: give flags only, -help lists them", flag.Arg(0)))
	}
	if *consumer {
		signal.Ignore(os.Interrupt) // a terminal sends it to both, and the parent knows what to do
		if err := Consume(os.Stdin, consume); err != nil {
			fail(name, fmt.Errorf("consumer: %w", err))
		}
		return
	}
	result, err := interruptible(&plan, run)
	if err != nil {
		fail(name, err)
	}
	fmt.Println(result.JSON())
	if !result.Good() {
		os.Exit(1)
	}
}

var errTime = errors.New("the time was up")

// interruptible runs until done, interrupted, or stuck: in any case what was made on the servers is removed.
func interruptible(plan *Plan, run func(context.Context, *Plan) (webhooks.Result, error)) (webhooks.Result, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errTime)
	defer cancel()
	return run(ctx, plan)
}

func fail(name string, err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	os.Exit(1)
}
