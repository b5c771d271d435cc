package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
)

const together = 16 // messages of a stage in flight, where it is more than one

// draining is one way of messages out of a stage.
type draining struct {
	inFlight int
	works    time.Duration // the handler, for each message
	fails    bool          // each fails again, and goes to a second stage
	messages int
}

// drain is how many messages a second leave one partition of a stage in which all are due, as after an outage, and the
// processor time and the allocations of each in this process.
func drain(c *cluster, p plan) (figures []harness.Figure, err error) {
	for _, d := range p.drains {
		var rates, spent, allocs []float64
		for range p.drainRounds {
			of, err := c.drained(d, p.stays)
			if err != nil {
				return nil, err
			}
			rates = append(rates, float64(d.messages)/of.took.Seconds())
			spent = append(spent, float64(of.cpu.Microseconds())/float64(d.messages))
			allocs = append(allocs, float64(of.allocs)/float64(d.messages))
			harness.Progress("%+v: %.0f messages a second, %.1f us each", d, rates[len(rates)-1], spent[len(spent)-1])
		}
		figures = append(figures, harness.Figure{
			"in_flight": d.inFlight, "handler_ms": d.works.Milliseconds(), "fail_again": d.fails,
			"per_s": harness.Whole(harness.Median(rates)), "cpu_us": harness.Hundredths(harness.Median(spent)),
			"allocs": harness.Whole(harness.Median(allocs)),
		})
	}
	return figures, c.Remove()
}

// spent is what the process has used for all messages of a stage.
type spent struct {
	took, cpu time.Duration
	allocs    uint64
}

// used is what the process has used until now.
func used() spent {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return spent{cpu: harness.ProcessorTime(), allocs: memory.Mallocs}
}

// drained lets all messages of a topic fail and, when all have waited, a second instance of the service handle them.
func (c *cluster) drained(d draining, stays time.Duration) (spent, error) {
	stays += time.Duration(d.messages) * time.Millisecond // longer than it takes to fill the stage
	topic := "bench-drain-" + watermill.NewShortUUID()
	if err := c.Fill(topic, d.messages); err != nil {
		return spent{}, err
	}
	group := "bench-" + watermill.NewShortUUID()
	var staged, handled, began atomic.Int64
	full, done := make(chan struct{}), make(chan struct{})
	err := c.instance(topic, group, d.inFlight, stays, func(context.Context, stages.Waiting) {
		if staged.Add(1) == int64(d.messages) {
			close(full)
		}
	}, func(*message.Message) error {
		began.CompareAndSwap(0, time.Now().UnixNano())
		return harness.ErrDown
	}, full)
	if err != nil {
		return spent{}, err
	}
	if time.Since(time.Unix(0, began.Load())) > stays {
		return spent{}, fmt.Errorf("to fill a stage took longer than its %s", stays)
	}
	var before, all spent // the first message may still be handled when the last one ends
	last := func() {
		all = used()
		all.took = time.Since(time.Unix(0, began.Load()))
		close(done)
	}
	if !timing.Wait(c.Ctx, stays) {
		return spent{}, c.Ctx.Err()
	}
	staged.Store(0)
	err = c.instance(topic, group, d.inFlight, stays, func(context.Context, stages.Waiting) {
		if staged.Add(1) == int64(d.messages) {
			last()
		}
	}, func(msg *message.Message) error {
		if inside.Poison.StageOf(msg).DueAt.IsZero() {
			return errors.New("a message of the live topic comes again")
		}
		n := handled.Add(1)
		if n == 1 {
			began.Store(time.Now().UnixNano())
			before = used()
		}
		time.Sleep(d.works)
		switch {
		case d.fails:
			return harness.ErrDown
		case n == int64(d.messages):
			last()
		}
		return nil
	}, done)
	return spent{took: all.took, cpu: all.cpu - before.cpu, allocs: all.allocs - before.allocs}, err
}

// instance runs a service whose messages wait in a stage after their first failure, and in another after the second,
// until done.
func (c *cluster) instance(topic, group string, inFlight int, stays time.Duration,
	staged func(context.Context, stages.Waiting), handle message.NoPublishHandlerFunc,
	done <-chan struct{}) (err error) {
	waiting, subscriber, err := wmkafka.NewStages(c.Brokers, group+"-stages",
		wmkafka.SubscriberConfig{InFlight: inFlight}, wmkafka.PublisherConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, waiting.Close()) }()
	channel, err := spillway.New(c.Ctx, spillway.Config{Publisher: c.Pub, Stages: &stages.Config{
		Publisher: waiting, Stages: stages.Delays(stays, time.Hour), Jitter: -1, Hooks: stages.Hooks{OnStage: staged},
		Subscriber: func(topic, group string) (message.Subscriber, error) {
			c.Made(topic)
			return subscriber(topic, group)
		},
	}})
	if err != nil {
		return err
	}
	sub, err := wmkafka.NewSubscriber(c.Brokers, group, wmkafka.SubscriberConfig{})
	if err != nil {
		return err
	}
	return harness.Route(c.Ctx, func(router *message.Router) error {
		channel.Attach(router)
		_, err := channel.Stages().AddConsumerHandler(router, "bench", topic, sub, handle)
		return err
	}, nil, done, patience)
}
