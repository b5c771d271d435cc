package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
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
	fmt.Println(result.JSON())
	if !result.Good() {
		os.Exit(1)
	}
}

// parse reads the flags. What they say is judged by Plan.Ready.
func parse(args []string) (*Plan, error) {
	plan := &Plan{}
	var stages, needs string
	flags := flag.NewFlagSet("stages", flag.ExitOnError)
	flags.StringVar(&plan.Input, "input", "", "file of events, a line {\"event\": name, \"payload\": {...}} each "+
		"(default: 60 that are built in); they come round and round")
	flags.StringVar(&plan.Brokers, "brokers", "",
		"addresses of Kafka, with commas between (default: SPILLWAY_KAFKA, or "+
			"that of \"make services\")")
	flags.StringVar(&plan.Postgres, "database", "", "URL of PostgreSQL, best without a password, which arguments show "+
		"to everybody (default: SPILLWAY_POSTGRES, or that of \"make services\")")
	flags.Uint64Var(&plan.Seed, "seed", 1, "seed of the order of events, and of which are sent twice")
	flags.IntVar(&plan.Rate, "rate", 100, "events published per second")
	flags.DurationVar(&plan.Down, "down", 20*time.Second, "how long the downstream is down; events are published for "+
		"half as long again")
	flags.StringVar(&stages, "stages", "1s,3s,10s", "delays of the stages; with -blocking the first and the longest "+
		"wait of the retry")
	flags.StringVar(&needs, "needs", "issues", "kinds of events that need the downstream, with commas between")
	flags.BoolVar(&plan.Blocking, "blocking", false, "without stages: Watermill's Retry and PoisonQueue")
	flags.DurationVar(&plan.Limit, "limit", time.Minute, "how long to wait, when all is published, until it is handled")
	_ = flags.Parse(args) // it ends the program itself
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unknown argument %q: give flags only, -help lists them", flags.Arg(0))
	}
	for _, text := range split(stages) {
		delay, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("-stages %q: give durations with commas between, as in 1s,3s,10s", stages)
		}
		plan.Stages = append(plan.Stages, delay)
	}
	plan.Needs = split(needs)
	return plan, nil
}

// split reads a list with commas between.
func split(list string) []string {
	names := strings.Split(list, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	return names
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "stages:", err)
	os.Exit(1)
}
