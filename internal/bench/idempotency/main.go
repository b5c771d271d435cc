// Command idempotency measures what the idempotent receiver costs in transaction mode, against the same handler with a
// transaction of its own and no deduplication, and how the time of a claim grows with the keys that are kept. It prints
// JSON lines. Rounds alternate, and medians are compared, because the machine is shared.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"
)

// plan says how much is measured.
type plan struct {
	databases []string
	rounds    int           // of each side
	round     time.Duration // how long one takes, roughly
	keys      int           // that are kept where growth is measured, against few
	few       int
	claims    int // of a round where growth is measured
}

func main() {
	p := plan{few: 10_000, claims: 200}
	flag.IntVar(&p.rounds, "rounds", 9, "rounds of each side")
	flag.DurationVar(&p.round, "round", 700*time.Millisecond, "how long a round takes")
	flag.IntVar(&p.keys, "keys", 10_000_000, "kept keys for the figure of growth (0: leave it out)")
	only := flag.String("db", "postgres,mariadb,sqlite", "databases to measure")
	flag.Parse()
	p.databases = strings.Split(*only, ",")
	if err := run(p, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

func run(p plan, to io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for _, s := range sides {
		if !slices.Contains(p.databases, s.db) {
			continue
		}
		for _, consumers := range s.consumers {
			if err := throughput(ctx, s, consumers, p, to); err != nil {
				return fmt.Errorf("%s: %w", s.db, err)
			}
		}
	}
	if p.keys == 0 || !slices.Contains(p.databases, "postgres") {
		return nil
	}
	return growth(ctx, p, to)
}

// throughput compares the two in alternating rounds, in one database.
func throughput(ctx context.Context, s side, consumers int, p plan, to io.Writer) (err error) {
	d, err := open(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	receiver, err := d.receiver()
	if err != nil {
		return err
	}
	var own, with []float64
	for i := range p.rounds + 1 { // the first warms up
		a, err := measure(ctx, consumers, p.round, d.own)
		if err != nil {
			return fmt.Errorf("own transaction: %w", err)
		}
		b, err := measure(ctx, consumers, p.round, receiver)
		if err != nil {
			return fmt.Errorf("receiver: %w", err)
		}
		if i > 0 {
			own, with = append(own, a), append(with, b)
		}
	}
	return say(to, map[string]any{
		"figure": "idempotency", "db": s.db, "driver": s.driver, "store": s.name, "optimistic": s.optimistic, "mode": "transaction", "consumers": consumers,
		"handler_own_tx_per_s": hundredths(median(own)), "with_receiver_per_s": hundredths(median(with)), "ratio": hundredths(median(with) / median(own)),
	})
}

func say(to io.Writer, figure map[string]any) error {
	line, err := json.Marshal(figure)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(to, string(line))
	return err
}

func median(of []float64) float64 {
	of = slices.Sorted(slices.Values(of))
	return of[len(of)/2]
}

func hundredths(x float64) float64 { return math.Round(x*100) / 100 }
