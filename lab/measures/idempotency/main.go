// Command idempotency measures what the idempotent receiver costs in transaction mode, against the same handler with a
// transaction of its own and no deduplication, and how the time of a claim grows with the keys that are kept. It prints
// JSON lines.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/lab/internal/harness"
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
	flag.IntVar(&p.rounds, "rounds", 5, "rounds of each side that count; one more warms up")
	flag.DurationVar(&p.round, "round", 700*time.Millisecond, "how long a round takes")
	flag.IntVar(&p.keys, "keys", 1_000_000, "kept keys for the figure of growth (0: leave it out)")
	only := flag.String("db", "postgres,mariadb,sqlite", "databases to measure")
	flag.Parse()
	p.databases = strings.Split(*only, ",")
	harness.Main(time.Hour, p.run)
}

func (p plan) run(ctx context.Context, to io.Writer) error {
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
	defer func() { err = errors.Join(err, d.Close()) }()
	receiver, err := d.receiver()
	if err != nil {
		return err
	}
	side := func(what string, handle message.HandlerFunc) func() (float64, error) {
		return func() (float64, error) {
			perSecond, err := measure(ctx, consumers, p.round, handle)
			if err != nil {
				err = fmt.Errorf("%s: %w", what, err)
			}
			return perSecond, err
		}
	}
	harness.Progress("%s, %s, %d consumers: a transaction of its own, and the receiver, a second", s.driver, s.name,
		consumers)
	medians, err := harness.Alternate(p.rounds, side("own transaction", d.own), side("receiver", receiver))
	if err != nil {
		return err
	}
	own, with := medians[0], medians[1]
	return harness.Print(to, "idempotency", harness.Figure{
		"db": s.db, "driver": s.driver, "store": s.name, "mode": "transaction",
		"consumers": consumers, "handler_own_tx_per_s": harness.Hundredths(own),
		"with_receiver_per_s": harness.Hundredths(with), "ratio": harness.Hundredths(with / own),
	})
}
