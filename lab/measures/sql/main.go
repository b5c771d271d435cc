// Command sql measures what it costs to consume a table with everything in one transaction, against watermill-sql's own
// subscriber and a handler with a transaction of its own, and prints JSON lines.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

// plan says how much is measured.
type plan struct {
	databases         []string
	backlogs, batches []int
	rounds            int // of each side
	messages          int // of a round
}

func main() {
	p := plan{backlogs: []int{1_000, 100_000}, batches: []int{1, 10, 20}, messages: 1_000}
	flag.IntVar(&p.rounds, "rounds", 2, "rounds of each side that count; one more warms up")
	only := flag.String("db", "postgres,mariadb", "databases to measure")
	flag.Parse()
	p.databases = strings.Split(*only, ",")
	harness.Main(20*time.Minute, p.run)
}

func (p plan) run(ctx context.Context, to io.Writer) error {
	for _, name := range p.databases {
		if err := measure(ctx, name, p, to); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func measure(ctx context.Context, name string, p plan, to io.Writer) (err error) {
	d, err := open(ctx, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	for i, backlog := range p.backlogs {
		topic := fmt.Sprintf("backlog-%d", backlog)
		harness.Progress("%s, %d messages wait", name, backlog)
		if err := d.fill(topic, backlog); err != nil {
			return err
		}
		for _, batch := range p.batches {
			figure, err := compare(d, topic, backlog, batch, p)
			if err != nil {
				return err
			}
			if err := harness.Print(to, "sql_one_tx", figure); err != nil {
				return err
			}
		}
		if i == 0 {
			if err := underFailure(d, topic, p, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare alternates rounds of both sides. The stock side has its default batch, except against one message a
// transaction, where it has that too.
func compare(d *database, topic string, backlog, batch int, p plan) (harness.Figure, error) {
	stockBatch, messages := 0, p.messages
	if batch == 1 {
		stockBatch, messages = 1, p.messages/5 // the stock side takes seconds for a hundred at a large backlog
	}
	side := func(what string, consume func(string, int, int) (time.Duration, error), batch int) func() (float64,
		error) {
		return func() (float64, error) {
			took, err := consume(topic, messages, batch)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", what, err)
			}
			return float64(messages) / took.Seconds(), nil
		}
	}
	medians, err := harness.Alternate(p.rounds, side("stock", d.stock, stockBatch), side("spillway", d.spillway, batch))
	if err != nil {
		return nil, err
	}
	stock, ours := medians[0], medians[1]
	return harness.Figure{
		"db": d.Name, "backlog": backlog, "batch": batch,
		"stock_own_tx_per_s": harness.Whole(stock), "spillway_one_tx_per_s": harness.Whole(ours),
		"ratio": harness.Hundredths(ours / stock),
	}, nil
}
