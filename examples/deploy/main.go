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
	plan := parse(os.Args[1:])
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	result, err := run(ctx, plan, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "deploy:", err)
		os.Exit(1)
	}
	fmt.Println(result.JSON())
	if !result.good(plan) {
		os.Exit(1)
	}
}

// Plan is what the flags say.
type Plan struct {
	On      string
	Takes   time.Duration
	Between time.Duration
	Without bool

	topic string
}

func parse(args []string) *Plan {
	plan := &Plan{topic: fmt.Sprintf("deploy-%d", time.Now().UnixNano())}
	flags := flag.NewFlagSet("deploy", flag.ExitOnError)
	flags.StringVar(&plan.On, "on", "kafka",
		"where the messages are: kafka, rabbitmq or postgres; \"make services\" starts "+
			"the servers")
	flags.DurationVar(&plan.Takes, "takes", 2*time.Second, "how long a handler takes")
	flags.DurationVar(&plan.Between, "between", 4*time.Second,
		"the time between an instance's start and the next one's end")
	flags.BoolVar(&plan.Without, "without", false, "without the drain")
	_ = flags.Parse(args) // it ends the program itself
	return plan
}
