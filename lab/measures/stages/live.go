package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

// patience is how long a run may take that has an end.
const patience = 3 * time.Minute

var delays = []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}

// stock is Watermill's own parts, for as many messages as they manage in the limit.
func (c *cluster) stock(topic string, t *harness.Trial, limit time.Duration) error {
	// without which nothing doubles
	retry := wm.Retry{MaxRetries: 3, InitialInterval: 100 * time.Millisecond, Multiplier: 2,
		MaxInterval: 10 * time.Second}
	return c.Watermill(topic, retry, t, limit)
}

// staged is a channel with stages, on subscribers and publishers of package wmkafka, to the end: all good messages
// handled, all failing ones in the dead-letter topic after every stage. So many messages of the live topic are in
// flight.
func (c *cluster) staged(topic string, inFlight int, t *harness.Trial) (err error) {
	before, err := c.size(topic + ".dlq")
	if err != nil {
		return err
	}
	dead, err := wmkafka.NewPublisher(c.Brokers, wmkafka.PublisherConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dead.Close()) }()
	waiting, subscriber, err := wmkafka.NewStages(c.Brokers, "bench-"+watermill.NewShortUUID(),
		wmkafka.SubscriberConfig{InFlight: together}, wmkafka.PublisherConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, waiting.Close()) }()
	ch, err := spillway.New(context.Background(), spillway.Config{
		Publisher: dead,
		Queue:     poison.QueueConfig{Origin: wmkafka.Origin, Hooks: poison.Hooks{OnDeadLetter: t.Letter}},
		Stages: &stages.Config{
			Publisher: waiting, Stages: stages.Delays(delays...),
			Subscriber: func(topic, group string) (message.Subscriber, error) {
				c.Made(topic)
				return subscriber(topic, group)
			},
		},
	})
	if err != nil {
		return err
	}
	sub, err := wmkafka.NewSubscriber(c.Brokers, watermill.NewUUID(), wmkafka.SubscriberConfig{InFlight: inFlight})
	if err != nil {
		return err
	}
	err = harness.Route(c.Ctx, func(router *message.Router) error {
		t.Ready = router.Running()
		ch.Attach(router)
		_, err := ch.Stages().AddConsumerHandler(router, "h"+watermill.NewShortUUID(), topic, sub, t.Handle)
		return err
	}, t.Begins, t.Done, patience)
	if err = errors.Join(err, t.Finished(1+len(delays))); err != nil {
		return err
	}
	after, err := c.size(topic + ".dlq")
	if err == nil && after-before < t.Bad() {
		err = fmt.Errorf("%d letters are in the topic, and %d messages failed", after-before, t.Bad())
	}
	return err
}

// ahead is how many live messages are in flight, where it is more than one: those then need no order, and one that
// steps aside holds up none.
const ahead = 64

// share is what is measured of one share of failing messages.
type share struct {
	percent, messages int
	topic             string
	watermill         []float64
	spillway          map[int][]float64 // by the live messages in flight
}

// live compares live messages a second while a share of the messages fails at every attempt.
func live(c *cluster, p plan) (figures []harness.Figure, err error) {
	shares := make([]*share, len(p.shares))
	for i, s := range p.shares {
		shares[i] = &s
		s.spillway = make(map[int][]float64)
		s.topic = fmt.Sprintf("bench-live-%d-%s", s.percent, watermill.NewShortUUID())
		if err := c.Fill(s.topic, s.messages); err != nil {
			return nil, err
		}
	}
	warm := &share{messages: p.warm, topic: "bench-warm-" + watermill.NewShortUUID()}
	if err := c.Fill(warm.topic, warm.messages); err != nil {
		return nil, err
	}
	var publishes []float64
	// the first is not counted
	if err := c.round(&share{percent: shares[0].percent, messages: shares[0].messages, topic: shares[0].topic,
		spillway: make(map[int][]float64)}, warm, p.stock); err != nil {
		return nil, err
	}
	for range p.rounds {
		for _, s := range shares {
			if err := c.round(s, warm, p.stock); err != nil {
				return nil, fmt.Errorf("%d %% failing: %w", s.percent, err)
			}
			harness.Progress("%d %% failing: %.0f messages a second", s.percent, s.spillway[1][len(s.spillway[1])-1])
		}
		publish, err := c.Confirmed(shares[0].topic+".plain", p.publishes)
		if err != nil {
			return nil, err
		}
		publishes = append(publishes, publish.Seconds())
	}
	publish := harness.Median(publishes)
	for _, s := range shares {
		for _, inFlight := range []int{1, ahead} {
			base := harness.Median(shares[0].spillway[inFlight]) // Spillway's own
			ours := harness.Median(s.spillway[inFlight])
			failing := float64(s.percent) / 100
			figure := harness.Figure{
				"failing_percent": s.percent, "live_in_flight": inFlight,
				"spillway_per_s":        harness.Whole(ours),
				"share_of_failure_free": harness.Hundredths(ours / base),
				"confirmed_publish_us":  harness.Whole(publish * 1e6),
			}
			if len(s.watermill) > 0 {
				theirs := harness.Median(s.watermill)
				figure["watermill_per_s"], figure["ratio"] = harness.Whole(theirs), harness.Hundredths(ours/theirs)
			}
			if inFlight == 1 { // what would be left if each failure held up the live messages for its publish
				figure["if_each_waited"] = harness.Hundredths(1 / (1 + failing/(1-failing)*base*publish))
			}
			figures = append(figures, figure)
		}
	}
	return figures, c.Remove()
}

// round measures all sides of a share. Each comes to a broker that was busy just now: while Watermill retries it
// sleeps, and the next one would come to a machine that was idle for half a minute.
func (c *cluster) round(s, warm *share, limit time.Duration) error {
	if limit > 0 {
		theirs := harness.NewTrial(s.messages, s.percent)
		if err := errors.Join(c.warmUp(warm), c.stock(s.topic, theirs, limit)); err != nil {
			return err
		}
		s.watermill = append(s.watermill, theirs.Live())
	}
	for _, inFlight := range []int{1, ahead} {
		ours := harness.NewTrial(s.messages, s.percent)
		if err := errors.Join(c.warmUp(warm), c.staged(s.topic, inFlight, ours)); err != nil {
			return err
		}
		s.spillway[inFlight] = append(s.spillway[inFlight], ours.Live())
	}
	return nil
}

func (c *cluster) warmUp(warm *share) error {
	return c.stock(warm.topic, harness.NewTrial(warm.messages, 0), patience)
}
