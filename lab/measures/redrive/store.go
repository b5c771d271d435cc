package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
)

var act = campaigns.Act{By: "bench", Reason: "to measure"}

// raw is how many publishes a second the publisher confirms to so many goroutines.
func (b *bench) raw(n, concurrency int) (float64, error) {
	messages := make(chan *message.Message, n)
	for range n {
		messages <- harness.Message()
	}
	close(messages)
	var publishing sync.WaitGroup
	errs := make([]error, concurrency)
	began := time.Now()
	for i := range concurrency {
		publishing.Go(func() {
			for msg := range messages {
				if errs[i] = b.cluster.Pub.Publish(b.topic, msg); errs[i] != nil {
					return
				}
			}
		})
	}
	publishing.Wait()
	return float64(n) / time.Since(began).Seconds(), errors.Join(errs...)
}

// letters are dead letters of the message that all figures are given for.
func (b *bench) letters(n int) []*message.Message {
	all := make([]*message.Message, n)
	for i := range all {
		all[i] = (&poison.Letter{Original: harness.Message(),
			Origin: poison.Origin{Topic: b.topic, Handler: "bench"}}).Encode()
	}
	return all
}

// fill stores letters.
func (b *bench) fill(n int) error {
	for n > 0 {
		some := min(n, 1000)
		if err := b.store.Publish(b.topic+".dlq", b.letters(some)...); err != nil {
			return err
		}
		n -= some
	}
	return nil
}

// work runs a worker for campaigns until stop is called.
func (b *bench) work() (stop func(), err error) {
	worker, err := campaigns.NewWorker(b.campaigns, b.cluster.Pub, campaigns.WorkerConfig{Poll: 10 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(b.cluster.Ctx)
	var working sync.WaitGroup
	working.Go(func() { _ = worker.Run(ctx) })
	return func() { cancel(); working.Wait() }, nil
}

// campaign is how many letters a second a campaign of n letters brings back, from the moment at which it runs to its
// end, both by the database's clock.
func (b *bench) campaign(n, concurrency int) (float64, error) {
	if err := b.fill(n); err != nil {
		return 0, err
	}
	stop, err := b.work()
	if err != nil {
		return 0, err
	}
	defer stop()
	c, err := b.campaigns.Start(b.cluster.Ctx, campaigns.Request{Concurrency: concurrency, Act: act})
	if err == nil {
		c, err = b.ended(c.ID, n)
	}
	return float64(n) / c.EndedAt.Sub(c.StartedAt).Seconds(), err
}

// ended waits until a campaign has redriven n letters.
func (b *bench) ended(id string, n int) (campaigns.Campaign, error) {
	for {
		c, err := b.campaigns.Get(b.cluster.Ctx, id)
		switch {
		case err != nil:
			return c, err
		case c.State == campaigns.Finished && c.Redriven == n:
			return c, nil
		case c.State.Ended() || c.State == campaigns.Paused:
			return c, fmt.Errorf("the campaign is %s with %d of %d letters redriven: %s", c.State, c.Redriven, n, c.Why)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// drain is the same for a drain.
func (b *bench) drain(n, concurrency int) (float64, error) {
	if err := b.fill(n); err != nil {
		return 0, err
	}
	began := time.Now()
	report, err := redrive.Drain(b.cluster.Ctx, b.store, b.cluster.Pub,
		redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{b.topic}, Concurrency: concurrency}})
	took := time.Since(began)
	if err == nil && report.Redriven != n {
		err = fmt.Errorf("the drain redrove %d of %d letters", report.Redriven, n)
	}
	return float64(n) / took.Seconds(), err
}
