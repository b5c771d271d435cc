package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/watermill-spillway/spillway/internal/testing/services"
)

// Exit statuses besides 0 and, for what is not as it must be, 1.
const (
	exitError   = 2 // nothing can be said
	exitNotOurs = 4 // the servers are not ours to kill
)

func main() {
	messages := flag.Int("messages", 20_000, "messages, for each broker")
	faults := flag.Int("faults", 0, "faults, for each broker (default: one in 400 messages, at least 8)")
	seed := flag.Uint64("seed", 0, "seed of messages and faults (default: a new one)")
	outages := flag.Bool("outages", false, "let handlers call a downstream that goes away too, behind a breaker of outages")
	only := flag.String("broker", "kafka,rabbitmq,postgres,mariadb", "brokers; the last two are tables")
	duration := flag.Duration("duration", 40*time.Minute, "the longest that a broker's campaign may take")
	consumer := flag.Bool("consume", false, "be a consumer; the program starts itself so")
	flag.Parse()
	if *consumer {
		if err := consumeMain(); err != nil {
			fmt.Fprintln(os.Stderr, "consumer:", err)
			os.Exit(exitError)
		}
		return
	}
	if flag.NArg() > 0 {
		fail(fmt.Errorf("unknown argument %q: give flags only, -help lists them", flag.Arg(0)))
	}
	_ = mysql.SetLogger(log.New(io.Discard, "", 0)) // it would tell of each connection that was meant to end
	if *seed == 0 {
		*seed = 1 + rand.Uint64N(1<<32)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	good := true
	for _, name := range strings.Split(*only, ",") {
		r, err := run(ctx, name, *seed, *messages, *faults, *outages, *duration)
		if err != nil {
			fail(fmt.Errorf("%s, seed %d: %w", name, *seed, err))
		}
		line, err := json.Marshal(r)
		if err != nil {
			fail(err)
		}
		fmt.Println(string(line))
		good = good && r.Good()
	}
	if !good {
		os.Exit(1)
	}
}

func run(ctx context.Context, name string, seed uint64, messages, faults int, outages bool,
	duration time.Duration) (*report, error) {
	servers := serversOf[name]
	if servers == nil {
		return nil, fmt.Errorf("-broker %q: give kafka, rabbitmq, postgres or mariadb", name)
	}
	p, err := newPlan(seed, messages, faults, name, outages)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	c := &campaign{plan: p, name: name, servers: servers, out: os.Stderr}
	return c.run(ctx)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "chaos:", err)
	if errors.Is(err, services.ErrNotOurs) {
		os.Exit(exitNotOurs)
	}
	os.Exit(exitError)
}
