// Command stages measures retry stages on a real Kafka and real databases, and prints JSON lines: what is left of the
// live throughput while messages fail, how late and how fast messages come out of a stage, and how many a delay store
// moves.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

// plan says how much is measured.
type plan struct {
	rounds    int
	shares    []share       // the first of which without failures
	stock     time.Duration // for a round of Watermill, which does not come to the end of its messages while some fail
	publishes int           // confirmed, for the time that one takes
	warm      int           // messages that are handled before each side of a round

	latenessRounds, lateness int // messages of a round
	drainRounds              int
	drains                   []draining
	stays                    time.Duration // how long messages of a stage wait that is drained, and 1 ms more for each
	moves                    int           // of messages that are due

	failing int           // messages, which all fail
	fails   time.Duration // how long that is watched
	size    int           // of their payloads, if that is more than the usual
	delayed bool          // they go through a stage first

	only string // figures, separated by commas; all if it is empty
}

func main() {
	p := plan{
		rounds: 5, shares: []share{{percent: 0, messages: 300_000}, {percent: 1, messages: 300_000},
			{percent: 10, messages: 200_000}, {percent: 50, messages: 20_000}},
		stock: 10 * time.Second, publishes: 2_000, warm: 150_000,
		latenessRounds: 3, lateness: 1_200, drainRounds: 1, stays: 8 * time.Second,
		drains: []draining{{1, 5 * time.Millisecond, false, 1_000}, {together, 5 * time.Millisecond, false, 1_000},
			{together, 0, false, 10_000}, {together, 0, true, 10_000}},
		moves:   10_000,
		failing: 1_200_000,
	}
	flag.IntVar(&p.rounds, "rounds", 1, "rounds of the live figures that count; one more warms up")
	flag.IntVar(&p.drainRounds, "drains", p.drainRounds, "rounds in which a stage is drained")
	flag.DurationVar(&p.stock, "stock", p.stock, "how long a round of Watermill lasts while messages fail; 0 leaves "+
		"Watermill out")
	flag.DurationVar(&p.fails, "fails", 20*time.Second, "how long all messages fail")
	flag.IntVar(&p.failing, "failing", p.failing, "how many messages there are that all fail")
	flag.IntVar(&p.size, "size", 0, "bytes of the payloads of messages that all fail; 0 is the usual")
	flag.BoolVar(&p.delayed, "delayed", false,
		"whether messages that all fail go through a stage before they become letters")
	flag.StringVar(&p.only, "only", "", "the figures to measure, separated by commas")
	flag.Parse()
	harness.Main(40*time.Minute, p.run)
}

func (p plan) run(ctx context.Context, to io.Writer) (err error) {
	kafka, err := harness.Kafka(ctx)
	if err != nil {
		return err
	}
	c := &cluster{kafka}
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, m := range []struct {
		name    string
		measure func(*cluster, plan) ([]harness.Figure, error)
	}{{"live_under_failure", live}, {"stage_lateness_ms", lateness}, {"stage_drain_per_s", drain},
		{"delay_store_moves_per_s", moves}, {"all_failing", allFailing}} {
		if p.only != "" && !slices.Contains(strings.Split(p.only, ","), m.name) {
			continue
		}
		harness.Progress("%s", m.name)
		figures, err := m.measure(c, p)
		if err != nil {
			return err
		}
		for _, figure := range figures {
			if err := harness.Print(to, m.name, figure); err != nil {
				return err
			}
		}
	}
	return nil
}
