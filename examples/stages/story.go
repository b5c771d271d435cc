package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/internal/testing/chart"
	"github.com/watermill-spillway/spillway/pubsub/wmkafka"
	"github.com/watermill-spillway/spillway/redrive"
)

// story is what happens while the consumer runs.
type history struct {
	plan     *Plan
	consumer *consumer
	down     *downstream
	live     *wmkafka.Publisher
	tally    *webhooks.Tally
	result   *Result
	out      *os.File
	terminal bool
}

func (s *history) tell(ctx context.Context) error {
	how := "stages " + strings.Trim(fmt.Sprint(s.plan.Stages), "[]")
	if s.plan.Blocking {
		how = "Watermill's Retry and PoisonQueue"
	}
	fmt.Fprintf(s.out, "%d deliveries to one partition of %s, %d/s, in %s; downstream down for %s; %s\n",
		len(s.plan.deliveries), s.plan.Topic, s.plan.Rate, s.plan.Database(), s.plan.Down, how)
	settled, err := s.outage(ctx)
	if err != nil {
		return err
	}
	if err := s.before(ctx); err != nil {
		return err
	}
	if settled && !s.plan.Blocking {
		if err := s.redrive(ctx); err != nil {
			return err
		}
	}
	return s.conclude(ctx, settled)
}

// outage publishes everything while the downstream is down and recovers, under the chart, and waits until it is
// handled.
func (s *history) outage(ctx context.Context) (settled bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	picture := &watch{Picture: chart.Picture{Out: s.out}, terminal: s.terminal, plan: s.plan, consumer: s.consumer,
		down: s.down}
	beside.Go(func() { picture.run(ctx) })

	published, start := make(chan error, 1), time.Now()
	beside.Go(func() { published <- publish(ctx, s.plan, s.live) })
	select {
	case <-time.After(s.plan.Down):
	case err := <-published: // nothing else ends it now
		return false, err
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	if s.plan.downUntil != nil {
		if err := s.plan.downUntil(ctx, s); err != nil {
			return false, err
		}
	}
	recovered, err := s.plan.effects(ctx, s.consumer.db)
	if err != nil {
		return false, err
	}
	s.down.up.Store(true)
	down, up := time.Since(start), time.Now()
	if err := <-published; err != nil {
		return false, err
	}
	all, err := s.plan.effects(ctx, s.consumer.db)
	if err != nil {
		return false, err
	}
	s.result.LivePerSWhileDown = perSecond(recovered.live, down)
	s.result.LivePerSAfter = perSecond(all.live-recovered.live, time.Since(up))
	s.result.LiveBehindFailure = max(recovered.live-s.plan.before, 0)
	return s.consumer.settled(ctx, s.plan.Limit)
}

// before shows what the stages could not help with.
func (s *history) before(ctx context.Context) error {
	var sum webhooks.Result
	if err := s.tally.Before(ctx, &sum, s.consumer.db, s.consumer.letters); err != nil {
		return err
	}
	s.result.Applied, s.result.DeadLettered = sum.Applied, sum.DeadLettered
	return webhooks.Table(ctx, s.out, "Dead letters by cause", s.consumer.letters)
}

// redrive brings the letters back at their first stage, now that the downstream is up.
func (s *history) redrive(ctx context.Context) error {
	report, err := redrive.Drain(ctx, s.consumer.letters, s.live, redrive.DrainConfig{
		Rules: redrive.Rules{
			Allow:        []string{s.plan.Topic},
			ReentryTopic: s.consumer.entry,
			Rate:         200,
			By:           "demo",
		},
	})
	if err != nil {
		return err
	}
	s.result.Redriven = report.Redriven
	fmt.Fprintf(s.out, "%d letters were redriven, and re-enter at the first stage.\n", report.Redriven)
	settled, err := s.consumer.settled(ctx, s.plan.Limit)
	if err == nil && !settled {
		err = fmt.Errorf("what was redriven was not handled in %s: give a longer -limit", s.plan.Limit)
	}
	return err
}

// conclude stops the consumer and counts by id.
func (s *history) conclude(ctx context.Context, settled bool) error {
	if err := s.consumer.end(); err != nil {
		return err
	}
	unhandled, err := s.consumer.backlog(ctx) // of one that ended it is exact
	if err != nil {
		return err
	}
	if !settled && !s.plan.Blocking {
		return fmt.Errorf("%d messages were not handled in %s: give a lower -rate or a longer -limit", unhandled,
			s.plan.Limit)
	}
	s.result.Unhandled = unhandled
	stored, err := s.plan.effects(ctx, s.consumer.db)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.plan.Limit)
	defer cancel()
	if err := webhooks.Progress(ctx, s.out, "summaries", stored.all, s.tally.Outputs); err != nil {
		return err
	}
	if err := webhooks.Table(ctx, s.out, "Dead letters that remain", s.consumer.letters); err != nil {
		return err
	}
	return s.result.conclude(ctx, s.consumer, s.down, s.tally, s.consumer.letters)
}
