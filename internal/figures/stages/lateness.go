package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/delay"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/poison/wmkafka"
)

const (
	waits      = time.Second
	jitter     = 0.1 // the default
	perSecond  = 200
	topicStage = "kafka topic"
	storeStage = "postgres store"
)

// lateness is how long after it was due a message comes to its handler again, of so many a second that all fail once.
func lateness(c *cluster, p plan) ([]map[string]any, error) {
	d, err := open(c.ctx, "postgres")
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.close() }()
	type measured struct{ p50, p99 []float64 }
	kinds := map[string]*measured{topicStage: {}, storeStage: {}}
	for range p.latenessRounds {
		for kind, store := range map[string]*delay.Store{topicStage: nil, storeStage: d.store} {
			late, err := c.late(store, p.lateness)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", kind, err)
			}
			kinds[kind].p50 = append(kinds[kind].p50, late[len(late)/2])
			kinds[kind].p99 = append(kinds[kind].p99, late[len(late)*99/100])
		}
	}
	var figures []map[string]any
	for _, kind := range []string{topicStage, storeStage} {
		figures = append(figures, map[string]any{
			"figure": "stage_lateness_ms", "kind": kind, "jitter_ms": whole(jitter * waits.Seconds() * 1e3),
			"p50": hundredths(median(kinds[kind].p50)), "p99": hundredths(median(kinds[kind].p99)),
		})
	}
	return figures, c.remove()
}

// late returns in milliseconds how late n messages were, in order. Those before them, of up to two seconds, are not
// counted: they wait for their consumer group.
func (c *cluster) late(store *delay.Store, n int) (late []float64, err error) {
	topic := "figures-late-" + watermill.NewShortUUID()
	if err := c.create(topic); err != nil {
		return nil, err
	}
	stages, err := wmkafka.NewPublisher(wmkafka.PublisherConfig{Brokers: c.brokers, ProducerPerTopic: true, Together: 200})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stages.Close()) }()
	subscriber := func(topic, group string) (message.Subscriber, error) {
		c.made(topic)
		return wmkafka.NewSubscriber(wmkafka.SubscriberConfig{Brokers: c.brokers, ConsumerGroup: group})
	}
	ch, err := spillway.New(spillway.Config{Publisher: c.pub, Stages: middleware.StagesConfig{
		Publisher: stages, Subscriber: subscriber, Stages: middleware.Delays(waits), Store: store, Jitter: jitter,
	}})
	if err != nil {
		return nil, err
	}
	sub, err := subscriber(topic, watermill.NewUUID())
	if err != nil {
		return nil, err
	}
	first := min(n/2, 2*perSecond)
	var lock sync.Mutex
	var failed atomic.Bool
	done := make(chan struct{})
	again := make(map[int]bool)
	handle := func(msg *message.Message) error {
		due := poison.StageOf(msg).DueAt
		if due.IsZero() {
			return errDown
		}
		lock.Lock()
		defer lock.Unlock()
		if number := numberOf(msg.Payload); number >= first && !again[number] {
			again[number] = true
			if late = append(late, float64(time.Since(due).Microseconds())/1e3); len(late) == n {
				close(done)
			}
		}
		return nil
	}
	err = c.route(func(router *message.Router) error {
		ch.Attach(router)
		_, err := ch.Stages().AddConsumerHandler(router, "figures", topic, sub, handle)
		go func() {
			<-router.Running()
			failed.Store(c.publishSteadily(topic, first+n) != nil)
		}()
		return err
	}, done, patience)
	lock.Lock()
	defer lock.Unlock()
	if err == nil && (failed.Load() || len(late) < n) {
		err = fmt.Errorf("%d of %d messages came again", len(late), n)
	}
	slices.Sort(late)
	return late, err
}

func (c *cluster) publishSteadily(topic string, n int) error {
	ticker := time.NewTicker(time.Second / perSecond)
	defer ticker.Stop()
	for number := range n {
		<-ticker.C
		if err := c.pub.Publish(topic, usual(number)); err != nil {
			return err
		}
	}
	return nil
}
