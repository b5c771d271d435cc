// Command order measures what the order of keys costs on one Kafka partition with PostgreSQL, and prints JSON lines as
// it goes: many keys at a time against one message at a time, messages that are parked and tried again, how many a
// second are parked and drained, and what that costs while many are parked.
//
//	make bench-order
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

// plan says how much is measured.
type plan struct {
	rounds, keys, lanes int
	work                time.Duration // of a handler
	one, many           int           // messages of a round, one at a time, and many
	parked              int           // messages of a round that are parked, or drained
	stocks              []int         // of parked messages, for the costs
	costs               int           // of each kind that are averaged
	only                string        // figures, separated by commas; all if it is empty
}

func main() {
	p := plan{keys: 1000, lanes: 16, work: 2500 * time.Microsecond, one: 400, many: 12_000, parked: 10_000,
		stocks: []int{100, 10_000, 100_000}, costs: 3000}
	flag.IntVar(&p.rounds, "rounds", 2, "rounds that count; one more warms up")
	flag.StringVar(&p.only, "only", "", "the figures to measure, separated by commas")
	flag.Parse()
	harness.Main(20*time.Minute, p.run)
}

// bench is what is measured.
type bench struct {
	plan
	*harness.Cluster
	ctx context.Context
	to  io.Writer
}

func (p plan) run(ctx context.Context, to io.Writer) (err error) {
	kafka, err := harness.Kafka(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kafka.Close()) }()
	b := &bench{p, kafka, ctx, to}
	if err := b.server(); err != nil {
		return err
	}
	for _, m := range []struct {
		name    string
		measure func() error
	}{{"order_rate", b.rates}, {"order_parking_per_s", b.parking}, {"order_costs_us", b.costsOf}} {
		if p.only != "" && !slices.Contains(strings.Split(p.only, ","), m.name) {
			continue
		}
		if err := m.measure(); err != nil {
			return err
		}
	}
	return nil
}

// server prints what the figures hold for.
func (b *bench) server() (err error) {
	db, err := harness.Open(b.ctx, "postgres")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var version, waits string
	const question = `SELECT current_setting('server_version'), current_setting('fsync')`
	if err := db.QueryRowContext(b.ctx, question).Scan(&version, &waits); err != nil {
		return err
	}
	return harness.Print(b.to, "database", harness.Figure{"postgres": version, "fsync": waits})
}

func topicOf(what string) string { return "bench-order-" + what + "-" + watermill.NewShortUUID() }
