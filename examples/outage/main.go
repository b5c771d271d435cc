package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	plan, err := parse(os.Args[1:])
	if err != nil {
		fail(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	result, err := run(ctx, plan)
	stop()
	if err != nil {
		fail(err)
	}
	fmt.Println(result.figure())
	if plan.FigureAlone {
		return
	}
	fmt.Println(result.JSON())
	if !result.Good() {
		os.Exit(1)
	}
}

// parse reads the flags. Plan.ready judges them.
func parse(args []string) (*Plan, error) {
	plan := &Plan{}
	flags := flag.NewFlagSet("outage", flag.ExitOnError)
	flags.StringVar(&plan.Input, "input", "", "file of events, a line {\"event\": name, \"payload\": {...}} each "+
		"(default: 60 that are built in); they come round and round")
	flags.StringVar(&plan.On, "on", "memory", "where the webhooks wait: memory, kafka, rabbitmq or postgres (\"make "+
		"services\" starts the servers)")
	flags.StringVar(&plan.How, "how", "refuse", "what the downstream does while it is unavailable: refuse (connection "+
		"refused), busy (503 with Retry-After) or hang")
	flags.IntVar(&plan.Rate, "rate", 200, "webhooks published per second")
	flags.DurationVar(&plan.Before, "before", 3*time.Second, "how long the downstream is there first")
	flags.DurationVar(&plan.Down, "down", 10*time.Second, "how long the downstream is unavailable")
	flags.DurationVar(&plan.After, "after", 8*time.Second, "how long webhooks are published after its return")
	flags.IntVar(&plan.InFlight, "in-flight", 100, "webhooks that are handled at the same time")
	flags.Float64Var(&plan.Poison, "poison", 0.01, "share of webhooks that are cut short on their way: they are dead "+
		"letters, outage or not")
	flags.Uint64Var(&plan.Seed, "seed", 1,
		"seed of the order of events, of which are sent twice, and of which are cut short")
	flags.BoolVar(&plan.Without, "without", false, "without the breaker")
	flags.BoolVar(&plan.FigureAlone, "figure", false, "print the line with the figure alone")
	flags.DurationVar(&plan.Limit, "limit", 2*time.Minute,
		"how long to wait, when all is published, until it is handled")
	_ = flags.Parse(args) // it ends the program itself
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unknown argument %q: give flags only, -help lists them", flags.Arg(0))
	}
	return plan, nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "outage:", err)
	os.Exit(1)
}
