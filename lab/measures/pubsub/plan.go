package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

// plan says how much is measured.
type plan struct {
	rounds      int
	happy       int // messages of a round that all succeed
	deadLetters int // messages of a round that all fail
}

func (p plan) run(ctx context.Context, to io.Writer, b broker) (err error) {
	ps, err := b.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ps.close()) }()
	m := &measured{under: ps, ctx: ctx, plan: p}
	happy, err := m.happy()
	if err != nil {
		return err
	}
	happy["pubsub"] = b.name
	if err := harness.Print(to, "pubsub_happy", happy); err != nil {
		return err
	}
	letters, err := m.letters()
	if err != nil {
		return err
	}
	letters["pubsub"] = b.name
	return harness.Print(to, "pubsub_dead_letter", letters)
}

// measured is one pub/sub under the plan.
type measured struct {
	under *pubsub
	ctx   context.Context
	plan  plan
}

// happy compares messages a second of a bare router and of a protected one.
func (m *measured) happy() (figure harness.Figure, err error) {
	n := m.plan.happy
	topic := "bench-happy-" + watermill.NewShortUUID()
	if err := m.under.create(topic); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.under.remove(topic)) }()
	if _, err := m.fill(topic, n); err != nil {
		return nil, err
	}
	perSecond := func(took time.Duration, err error) (float64, error) { return float64(n) / took.Seconds(), err }
	medians, err := harness.Alternate(m.plan.rounds,
		func() (float64, error) { return perSecond(m.consumeBare(topic, n)) },
		func() (float64, error) { return perSecond(m.consume(topic, n, nil)) })
	if err != nil {
		return nil, err
	}
	bare, protected := medians[0], medians[1]
	return harness.Figure{
		"bare_per_s": harness.Whole(bare), "spillway_per_s": harness.Whole(protected),
		"ratio": harness.Hundredths(protected / bare),
	}, nil
}

// letters compares what a dead letter adds to a delivery and its ack with one confirmed publish of the message.
func (m *measured) letters() (harness.Figure, error) {
	n := m.plan.deadLetters
	var topic string
	each := func(took time.Duration, err error) (float64, error) { return took.Seconds() * 1e6 / float64(n), err }
	medians, err := harness.Alternate(m.plan.rounds,
		func() (float64, error) {
			topic = "bench-dead-" + watermill.NewShortUUID()
			if err := m.under.create(topic, topic+".dlq"); err != nil {
				return 0, err
			}
			return each(m.fill(topic, n))
		},
		func() (float64, error) { return each(m.consumeBare(topic, n)) },
		func() (float64, error) {
			took, err := m.consume(topic, n, errPermanent)
			return each(took, errors.Join(err, m.under.remove(topic, topic+".dlq", topic+".invalid")))
		})
	if err != nil {
		return nil, err
	}
	publish, bare, letter := medians[0], medians[1], medians[2]
	return harness.Figure{
		"confirmed_publish_us": harness.Whole(publish), "bare_us": harness.Whole(bare),
		"dead_letter_us": harness.Whole(letter),
		"ratio":          harness.Hundredths((letter - bare) / publish),
	}, nil
}

var errPermanent = classify.Permanent(errors.New("no such order"))

// fill publishes n messages, one by one, and returns how long that took.
func (m *measured) fill(topic string, n int) (took time.Duration, err error) {
	pub, err := m.under.publisher()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, pub.Close()) }()
	begun := time.Now()
	for range n {
		if err := pub.Publish(topic, harness.Message()); err != nil {
			return 0, err
		}
	}
	return time.Since(begun), nil
}

// consumeBare returns how long a router without any middleware, on Watermill's own subscriber, takes for n messages.
func (m *measured) consumeBare(topic string, n int) (time.Duration, error) {
	sub, err := m.under.bare(watermill.NewShortUUID())
	if err != nil {
		return 0, err
	}
	return harness.Consume(m.ctx, topic, n, sub, func(*message.Router) {}, func(*message.Message) error { return nil })
}

// consume returns how long a protected router takes for n messages that all end with outcome.
func (m *measured) consume(topic string, n int, outcome error) (took time.Duration, err error) {
	sub, err := m.under.subscriber(watermill.NewShortUUID())
	if err != nil {
		return 0, err
	}
	dead, err := m.under.publisher()
	if err != nil {
		return 0, errors.Join(err, sub.Close())
	}
	defer func() { err = errors.Join(err, dead.Close()) }()
	dlc, err := spillway.New(m.ctx, spillway.Config{Publisher: dead, Logger: watermill.NopLogger{}})
	if err != nil {
		return 0, errors.Join(err, sub.Close())
	}
	return harness.Consume(m.ctx, topic, n, sub, dlc.Attach, func(*message.Message) error { return outcome })
}
