// Command stages measures retry stages on a real Kafka and real databases, and prints JSON lines: what is left of the live
// throughput while messages fail, how late and how fast messages come out of a stage, and how many a delay store moves.
// Spillway and Watermill are measured in alternating rounds, and medians are compared, because the machine is shared.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/services"
)

// plan says how much is measured.
type plan struct {
	rounds    int
	shares    []share       // the first of which without failures
	stock     time.Duration // for a round of Watermill, which does not come to the end of its messages while some fail
	publishes int           // of which the cost of one is told
	warm      int           // messages that are handled before each side of a round

	latenessRounds, lateness int // messages of a round
	drainRounds, drained     int
	moves                    int // of messages that are due
}

func main() {
	p := plan{
		rounds: 5, shares: []share{{percent: 0, messages: 300_000}, {percent: 1, messages: 200_000}, {percent: 10, messages: 40_000}},
		stock: 30 * time.Second, publishes: 2_000, warm: 150_000,
		latenessRounds: 3, lateness: 1_200, drainRounds: 3, drained: 1_000, moves: 10_000,
	}
	if err := run(p, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

func run(p plan, to io.Writer) (err error) {
	brokers, err := services.Lookup("kafka")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Minute)
	defer cancel()
	c, err := newCluster(ctx, strings.Split(brokers, ","))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	for _, measure := range []func(*cluster, plan) ([]map[string]any, error){live, lateness, drain, moves} {
		figures, err := measure(c, p)
		if err != nil {
			return err
		}
		for _, figure := range figures {
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

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}

func whole(v float64) int          { return int(v + 0.5) }
func hundredths(v float64) float64 { return float64(int(v*100+0.5)) / 100 }
