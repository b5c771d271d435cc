// Command sql measures what it costs to consume a table with everything in one transaction, against watermill-sql's own
// subscriber and a handler with a transaction of its own, and prints JSON lines. Rounds of both alternate, and medians are
// compared, because the machine is shared.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
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
	flag.IntVar(&p.rounds, "rounds", 5, "rounds of each side")
	only := flag.String("db", "postgres,mariadb", "databases to measure")
	flag.Parse()
	p.databases = strings.Split(*only, ",")
	if err := run(p, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

func run(p plan, to io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	for _, name := range p.databases {
		if err := measure(ctx, name, p, to); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func measure(ctx context.Context, name string, p plan, to io.Writer) (err error) {
	d, err := newDatabase(ctx, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	for _, backlog := range p.backlogs {
		topic := fmt.Sprintf("backlog-%d", backlog)
		if err := d.fill(topic, backlog); err != nil {
			return err
		}
		for _, batch := range p.batches {
			figure, err := compare(d, topic, backlog, batch, p)
			if err != nil {
				return err
			}
			line, err := json.Marshal(figure)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(to, string(line)); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare alternates rounds of both sides. The stock side has its default batch, except against one message a
// transaction, where it has that too.
func compare(d *database, topic string, backlog, batch int, p plan) (map[string]any, error) {
	stockBatch, messages := 0, p.messages
	if batch == 1 {
		stockBatch, messages = 1, p.messages/5 // the stock side takes seconds for a hundred at a large backlog
	}
	var stock, ours []float64
	for range p.rounds {
		took, err := d.stock(topic, messages, stockBatch)
		if err != nil {
			return nil, fmt.Errorf("stock: %w", err)
		}
		stock = append(stock, float64(messages)/took.Seconds())
		if took, err = d.spillway(topic, messages, batch); err != nil {
			return nil, fmt.Errorf("spillway: %w", err)
		}
		ours = append(ours, float64(messages)/took.Seconds())
	}
	return map[string]any{
		"figure": "sql_one_tx", "db": d.name, "backlog": backlog, "batch": batch,
		"stock_own_tx_per_s": int(median(stock)), "spillway_one_tx_per_s": int(median(ours)),
		"ratio": float64(int(median(ours)/median(stock)*100)) / 100,
	}, nil
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}
