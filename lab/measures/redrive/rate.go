package main

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

// keep prints how close a campaign comes to its rate, as a consumer of the target sees it.
func (b *bench) keep(to io.Writer, p pace) error {
	n := int(p.rate * p.last.Seconds())
	if err := b.fill(n); err != nil {
		return err
	}
	topic := "bench-redrive-" + watermill.NewShortUUID()
	if err := b.cluster.Create(topic); err != nil {
		return err
	}
	all, err := campaigns.New(b.cluster.Ctx, b.store, campaigns.Config{Allow: []string{topic}})
	if err != nil {
		return err
	}
	own := &bench{cluster: b.cluster, topic: topic, store: b.store, campaigns: all}
	stop, err := own.work()
	if err != nil {
		return err
	}
	defer stop()
	arrived, err := own.arrivals(n, func() error {
		_, err := all.Start(b.cluster.Ctx, campaigns.Request{To: topic, Rate: p.rate, Concurrency: 16, Act: act})
		return err
	})
	if err != nil {
		return err
	}
	perSecond := float64(n-1) / arrived[n-1].Sub(arrived[0]).Seconds()
	return harness.Print(to, "redrive_rate", harness.Figure{
		"source": "postgres store", "to": "kafka", "rate": p.rate, "seconds": p.last.Seconds(), "letters": n,
		"per_s": math.Round(perSecond*1000) / 1000, "error_percent": harness.Hundredths(100 * (perSecond/p.rate - 1)),
		"fastest_second": fastest(arrived, time.Second),
	})
}

// arrivals are the times at which n messages came to a consumer of the topic, in their order.
func (b *bench) arrivals(n int, begin func() error) (arrived []time.Time, err error) {
	sub, err := wmkafka.NewSubscriber(b.cluster.Brokers, watermill.NewUUID(), wmkafka.SubscriberConfig{InFlight: 100})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sub.Close()) }()
	ctx, cancel := context.WithCancel(b.cluster.Ctx)
	defer cancel()
	messages, err := sub.Subscribe(ctx, b.topic)
	if err != nil {
		return nil, err
	}
	// when it arrives, the group has its partition
	if err := b.cluster.Pub.Publish(b.topic, harness.Message()); err != nil {
		return nil, err
	}
	for msg := range messages {
		now := time.Now()
		msg.Ack()
		if arrived = append(arrived, now); len(arrived) == 1 {
			if err := begin(); err != nil {
				return nil, err
			}
		}
		if len(arrived) == n+1 {
			return arrived[1:], nil
		}
	}
	return nil, errors.Join(errors.New("the subscription ended early"), b.cluster.Ctx.Err())
}

// fastest is the largest number of arrivals within a time.
func fastest(arrived []time.Time, within time.Duration) (most int) {
	for i, from := range arrived {
		end, _ := slices.BinarySearchFunc(arrived, from.Add(within), time.Time.Compare)
		most = max(most, end-i)
	}
	return most
}
