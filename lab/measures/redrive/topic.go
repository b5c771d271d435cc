package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/requeuer"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
	"github.com/watermill-spillway/spillway/redrive"
)

// stopwatch is a publisher that notes when it confirmed its first message and its last. What comes before the first one
// is the joining of a consumer group.
type stopwatch struct {
	message.Publisher
	n int // messages to come

	mu          sync.Mutex
	confirmed   int
	first, last time.Time
	done        chan struct{}
}

func (s *stopwatch) Publish(topic string, messages ...*message.Message) error {
	if err := s.Publisher.Publish(topic, messages...); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Now()
	if s.confirmed == 0 {
		s.first = s.last
	}
	if s.confirmed += len(messages); s.confirmed == s.n {
		close(s.done)
	}
	return nil
}

// Close leaves the publisher open for the next round.
func (*stopwatch) Close() error { return nil }

// perSecond is what it measured, if all messages were confirmed.
func (s *stopwatch) perSecond() (float64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.confirmed != s.n {
		return 0, fmt.Errorf("%d of %d messages were published", s.confirmed, s.n)
	}
	return float64(s.n-1) / s.last.Sub(s.first).Seconds(), nil
}

// filled makes a topic with n dead letters, and a subscriber that has as many of them in flight as are published at a
// time.
func (b *bench) filled(n, concurrency int) (topic string, sub *wmkafka.Subscriber, err error) {
	topic = "bench-redrive-" + watermill.NewShortUUID() + ".dlq"
	if err := b.cluster.Create(topic); err != nil {
		return "", nil, err
	}
	b.cluster.Made(topic+".parked", topic+".quarantine")
	bulk, err := wmkafka.NewPublisher(b.cluster.Brokers, wmkafka.PublisherConfig{InFlight: 100})
	if err != nil {
		return "", nil, err
	}
	if err := errors.Join(bulk.Publish(topic, b.letters(n)...), bulk.Close()); err != nil {
		return "", nil, err
	}
	sub, err = wmkafka.NewSubscriber(b.cluster.Brokers, watermill.NewUUID(),
		wmkafka.SubscriberConfig{InFlight: concurrency})
	return topic, sub, err
}

// drainTopic is how many letters a second a drain of a dead-letter topic brings back.
func (b *bench) drainTopic(n, concurrency int) (float64, error) {
	topic, sub, err := b.filled(n, concurrency)
	if err != nil {
		return 0, err
	}
	watch := &stopwatch{Publisher: b.cluster.Pub, n: n, done: make(chan struct{})}
	_, err = redrive.DrainTopic(b.cluster.Ctx, sub, watch, redrive.DrainTopicConfig{
		Rules: redrive.Rules{Allow: []string{b.topic}, Concurrency: concurrency},
		Topic: topic, Park: b.cluster.Pub, Max: n, IdleAfter: time.Minute, FromBeginning: true,
	})
	if err := errors.Join(err, sub.Close()); err != nil {
		return 0, err
	}
	return watch.perSecond()
}

// requeue is the same for Watermill's Requeuer on the same subscriber. Its router calls the handler for each message
// that is in flight.
func (b *bench) requeue(n, concurrency int) (float64, error) {
	topic, sub, err := b.filled(n, concurrency)
	if err != nil {
		return 0, err
	}
	watch := &stopwatch{Publisher: b.cluster.Pub, n: n, done: make(chan struct{})}
	requeue, err := requeuer.NewRequeuer(requeuer.Config{
		Subscriber: sub, SubscribeTopic: topic, Publisher: watch,
		GeneratePublishTopic: func(requeuer.GeneratePublishTopicParams) (string, error) { return b.topic, nil },
	}, watermill.NopLogger{})
	if err != nil {
		return 0, errors.Join(err, sub.Close())
	}
	ctx, cancel := context.WithTimeout(b.cluster.Ctx, 2*time.Minute)
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- requeue.Run(ctx) }()
	select {
	case <-watch.done:
		cancel()
		err = <-ran
	case err = <-ran:
	}
	if err := errors.Join(err, sub.Close()); err != nil {
		return 0, err
	}
	return watch.perSecond()
}
