package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

// allFailing says how many letters a second one partition makes if every message fails for good, at once or after a
// stage, and how much memory that takes: at most in the first and in the last quarter of the time, and at each second.
func allFailing(c *cluster, p plan) ([]harness.Figure, error) {
	topic := "bench-failing-" + watermill.NewShortUUID()
	err := c.FillWith(topic, p.failing, func(number int) (*sarama.ProducerMessage, error) {
		msg := harness.Numbered(number)
		msg.Payload = append(msg.Payload, make([]byte, max(p.size-len(msg.Payload), 0))...)
		return wmkafka.Marshaler{}.Marshal(topic, msg)
	})
	if err != nil {
		return nil, err
	}
	dead, err := wmkafka.NewPublisher(c.Brokers, wmkafka.PublisherConfig{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = dead.Close() }()
	var delayed *stages.Config // nil: no stage
	staged := 0
	fails := classify.Permanent(errFails)
	if p.delayed {
		fails = classify.Transient(errFails)
		waiting, subscriber, err := wmkafka.NewStages(c.Brokers, "bench-"+watermill.NewShortUUID(),
			wmkafka.SubscriberConfig{InFlight: together}, wmkafka.PublisherConfig{})
		if err != nil {
			return nil, err
		}
		defer func() { _ = waiting.Close() }()
		staged = 1
		delayed = &stages.Config{
			Publisher: waiting, Stages: stages.Delays(time.Second),
			Subscriber: func(topic, group string) (message.Subscriber, error) {
				c.Made(topic)
				return subscriber(topic, group)
			},
		}
	}
	var letters, handled atomic.Int64
	all := make(chan struct{})
	ch, err := spillway.New(context.Background(), spillway.Config{
		Publisher: dead, Stages: delayed,
		Queue: poison.QueueConfig{Origin: wmkafka.Origin,
			Hooks: poison.Hooks{OnDeadLetter: func(context.Context, poison.Letter) {
				if letters.Add(1) == int64(p.failing) {
					close(all)
				}
			}}},
	})
	if err != nil {
		return nil, err
	}
	sub, err := wmkafka.NewSubscriber(c.Brokers, watermill.NewUUID(), wmkafka.SubscriberConfig{})
	if err != nil {
		return nil, err
	}
	begins, done := make(chan struct{}), make(chan struct{})
	var watched memory
	go func() {
		defer close(done)
		<-begins
		watched.watch(p.fails, all)
	}()
	err = harness.Route(c.Ctx, func(router *message.Router) error {
		ch.Attach(router)
		handle := func(*message.Message) error {
			if handled.Add(1) == 1 {
				close(begins)
			}
			return fails
		}
		if p.delayed {
			_, err := ch.Stages().AddConsumerHandler(router, "h"+watermill.NewShortUUID(), topic, sub, handle)
			return err
		}
		router.AddConsumerHandler("bench", topic, sub, handle)
		return nil
	}, begins, done, p.fails+patience)
	if n := letters.Load(); err == nil && n == 0 {
		err = errors.New("no letter was made of messages that all fail")
	} else if err == nil && handled.Load() < n {
		err = fmt.Errorf("%d letters of %d messages", n, handled.Load())
	}
	return []harness.Figure{{
		"failing_percent": 100, "seconds": harness.Whole(watched.lasted.Seconds()),
		"letters_per_s":          harness.Whole(float64(letters.Load()) / watched.lasted.Seconds()),
		"heap_mib_first_quarter": watched.first >> 20, "heap_mib_last_quarter": watched.last >> 20,
		"stages": staged, "payload_bytes": p.size, "heap_in_use_mib": watched.inUse, "rss_mib": watched.resident,
	}}, errors.Join(err, c.Remove())
}

var errFails = errors.New("the order is unknown")

// memory is the most that the heap held in the first and in the last quarter of a time.
type memory struct {
	first, last     uint64
	lasted          time.Duration
	inUse, resident []uint64 // in MiB, at each second
}

// watch looks ten times a second, until the time has passed or done is closed.
func (m *memory) watch(lasts time.Duration, done <-chan struct{}) {
	began, ticker := time.Now(), time.NewTicker(min(100*time.Millisecond, lasts/20))
	defer ticker.Stop()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"}}
	for m.lasted < lasts {
		select {
		case <-done:
			m.lasted = time.Since(began)
			m.last = cmp.Or(m.last, m.first)
			return
		case <-ticker.C:
		}
		m.lasted = time.Since(began)
		metrics.Read(sample)
		held := sample[0].Value.Uint64()
		if m.lasted >= time.Duration(len(m.inUse)+1)*time.Second {
			m.inUse = append(m.inUse, (held+sample[1].Value.Uint64())>>20)
			m.resident = append(m.resident, resident()>>20)
		}
		switch {
		case m.lasted < lasts/4:
			m.first = max(m.first, held)
		case m.lasted > lasts*3/4:
			m.last = max(m.last, held)
		}
	}
}

// resident is the memory of this process that the system holds for it, or 0 where that cannot be read.
func resident() uint64 {
	var size, pages uint64
	line, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscan(string(line), &size, &pages)
	}
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}
