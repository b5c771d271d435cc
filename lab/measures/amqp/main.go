// Command amqp measures what failing messages cost on a RabbitMQ queue while the next ones are handled, and while each
// one's confirm is waited for. It prints JSON lines.
package main

import (
	"context"
	"flag"
	"io"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

// plan says how much is measured.
type plan struct {
	rounds     int
	messages   int      // of a round
	kinds      []string // of queues
	prefetches []int
}

func main() {
	// The default prefetch, and one that spares the subscriber its questions for the next message.
	p := plan{kinds: []string{amqp091.QueueTypeClassic, amqp091.QueueTypeQuorum}, prefetches: []int{1, 100}}
	flag.IntVar(&p.rounds, "rounds", 9, "how often each side is measured")
	flag.IntVar(&p.messages, "messages", 3_000, "messages of a round")
	flag.Parse()
	harness.Main(20*time.Minute, p.run)
}

// percents are the shares of messages that fail.
var percents = []int{0, 1, 10}

// run compares good messages a second of a router that goes on while letters are published with those of one that waits
// for each confirm (MaxPlacing -1), by the share of messages that fail.
func (p plan) run(ctx context.Context, to io.Writer) error {
	for _, kind := range p.kinds {
		for _, prefetch := range p.prefetches {
			var sides []func() (float64, error)
			for _, percent := range percents {
				for _, maxPlacing := range []int{0, -1} {
					t := trial{ctx: ctx, kind: kind, n: p.messages, percent: percent, prefetch: prefetch,
						maxPlacing: maxPlacing}
					sides = append(sides, t.run)
				}
			}
			medians, err := harness.Alternate(p.rounds, sides...)
			if err != nil {
				return err
			}
			for i, percent := range percents {
				resumed, waits := medians[2*i], medians[2*i+1]
				if err := harness.Print(to, "amqp_under_failure", harness.Figure{
					"queue": kind, "prefetch": prefetch, "failing_percent": percent,
					"good_per_s": harness.Whole(resumed), "each_confirmed_per_s": harness.Whole(waits),
					"ratio": harness.Hundredths(resumed / waits), "share": harness.Hundredths(resumed / medians[0]),
					"share_each_confirmed": harness.Hundredths(waits / medians[1]),
				}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
