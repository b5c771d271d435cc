// Command kafka measures what the protection costs on one partition of a real Kafka, and prints JSON lines.
package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

// plan says how much is measured.
type plan struct {
	rounds      int
	happy       int // messages of a round that all succeed
	deadLetters int // messages of a round that all fail, at most happy
}

func main() {
	harness.Main(10*time.Minute, plan{rounds: 15, happy: 40_000, deadLetters: 1_500}.run)
}

func (p plan) run(ctx context.Context, to io.Writer) (err error) {
	c, err := harness.Kafka(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	happy, err := p.compareHappy(c)
	if err == nil {
		err = harness.Print(to, "kafka_happy", happy)
	}
	if err != nil {
		return err
	}
	letters, err := p.compareLetters(c)
	for _, figure := range letters {
		err = errors.Join(err, harness.Print(to, "kafka_dead_letter", figure))
	}
	return err
}

// compareHappy compares messages a second of a bare router and of a protected one.
func (p plan) compareHappy(c *harness.Cluster) (harness.Figure, error) {
	topic := "bench-happy-" + watermill.NewShortUUID()
	if err := c.Fill(topic, p.happy); err != nil {
		return nil, err
	}
	perSecond := func(took time.Duration, err error) (float64, error) { return float64(p.happy) / took.Seconds(), err }
	medians, err := harness.Alternate(p.rounds,
		func() (float64, error) { return perSecond(consumeBare(c, topic, p.happy)) },
		func() (float64, error) { return perSecond(consume(c, topic, p.happy)) })
	if err != nil {
		return nil, err
	}
	bare, protected := medians[0], medians[1]
	return harness.Figure{
		"bare_per_s": harness.Whole(bare), "spillway_per_s": harness.Whole(protected),
		"ratio": harness.Hundredths(protected / bare),
	}, nil
}

// compareLetters compares what a dead letter costs with one confirmed publish of its message: where a tenth of the
// messages fail, what the failing ones add; where all fail, a message from its delivery to its letter's confirm.
func (p plan) compareLetters(c *harness.Cluster) ([]harness.Figure, error) {
	topic := "bench-dead-" + watermill.NewShortUUID()
	if err := c.Fill(topic, p.happy); err != nil {
		return nil, err
	}
	ended := func(n, percent int) func() (float64, error) {
		return func() (float64, error) {
			took, err := letters(c, topic, n, percent)
			return took.Seconds() * 1e6, err
		}
	}
	medians, err := harness.Alternate(p.rounds,
		func() (float64, error) {
			each, err := c.Confirmed(topic+".plain", p.deadLetters)
			return each.Seconds() * 1e6, err
		},
		ended(p.happy, 0), ended(p.happy, tenth), ended(p.deadLetters, 100))
	if err != nil {
		return nil, err
	}
	publish, bad := medians[0], float64(p.happy*tenth/100)
	good := float64(p.happy) - bad
	figure := func(percent int, letter float64) harness.Figure {
		return harness.Figure{
			"failing_percent": percent, "confirmed_publish_us": harness.Whole(publish),
			"dead_letter_us": harness.Whole(letter), "ratio": harness.Hundredths(letter / publish),
		}
	}
	return []harness.Figure{
		figure(tenth, (medians[2]-medians[1]*good/float64(p.happy))/bad),
		figure(100, medians[3]/float64(p.deadLetters)),
	}, nil
}

// tenth is the share of messages that fail where some do, in percent.
const tenth = 10
