package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/internal/testing/chart"
)

// story is what happens while the service runs.
type history struct {
	plan    *Plan
	source  *source
	service *service
	down    *downstream

	result Result
}

// run tells the story of a plan, and leaves nothing of it behind.
func run(ctx context.Context, plan *Plan) (result Result, err error) {
	if err := plan.ready(); err != nil {
		return result, err
	}
	from, err := openSource(ctx, plan)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, from.close()) }()
	down, err := startDownstream(plan.How)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, down.close()) }()
	service, err := begin(ctx, plan, from, down)
	if err != nil {
		return result, err
	}
	s := &history{plan: plan, source: from, service: service, down: down}
	if err := errors.Join(s.tell(ctx), service.end()); err != nil {
		return result, err
	}
	return s.result, s.count(ctx) // again, as what comes late may come twice
}

func (s *history) tell(ctx context.Context) error {
	out, terminal := chart.Screen()
	breaker := "with the breaker"
	if s.plan.Without {
		breaker = "without the breaker"
	}
	fmt.Fprintf(out, "%d webhooks, %d/s, from %s to a downstream that is unavailable for %s; %s\n",
		len(s.plan.deliveries), s.plan.Rate, s.plan.On, s.plan.Down, breaker)
	if err := s.outage(ctx, &watch{Picture: chart.Picture{Out: out}, terminal: terminal, history: s}); err != nil {
		return err
	}
	return webhooks.Table(ctx, out, "Dead letters by cause", s.service.channel.Letters())
}

// outage publishes everything while the downstream goes away and comes back, under the chart, and waits until it is
// handled.
func (s *history) outage(ctx context.Context, picture *watch) error {
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	beside.Go(func() { picture.run(ctx) })

	before, during := int(float64(s.plan.Rate)*s.plan.Before.Seconds()), int(float64(s.plan.Rate)*s.plan.Down.Seconds())
	if err := s.publish(ctx, s.plan.deliveries[:before]); err != nil {
		return err
	}
	calls := s.down.calls.Load()
	if err := s.down.leave(); err != nil {
		return err
	}
	if err := s.publish(ctx, s.plan.deliveries[before:before+during]); err != nil {
		return err
	}
	if s.plan.downUntil != nil {
		s.plan.downUntil(s)
	}
	s.result.MessagesDuring, s.result.CallsDuring = during, int(s.down.calls.Load()-calls)
	returned := time.Now()
	if err := s.down.comeBack(); err != nil {
		return err
	}
	if err := s.publish(ctx, s.plan.deliveries[before+during:]); err != nil {
		return err
	}
	if err := s.settled(ctx); err != nil {
		return err
	}
	s.result.Probes = int(s.service.meter.probes.Load())
	back, ok := s.service.meter.backAfter(returned, s.plan.Rate)
	if ok {
		seconds := float64(back.Milliseconds()) / 1000
		s.result.SecondsToFullRate = &seconds
	}
	return nil
}

// publish keeps the plan's rate, or stays behind if the broker does.
func (s *history) publish(ctx context.Context, messages []*message.Message) error {
	const pace = 20 * time.Millisecond
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for start, sent := time.Now(), 0; sent < len(messages); {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		due := min(int(time.Since(start).Seconds()*float64(s.plan.Rate)), len(messages))
		if due > sent {
			if err := s.source.publisher.Publish(s.plan.topic, messages[sent:due]...); err != nil {
				return err
			}
			sent = due
		}
	}
	return nil
}

// settled waits until every webhook is stored or set aside, or the source says that none is left.
func (s *history) settled(ctx context.Context) error {
	for end := time.Now().Add(s.plan.Limit); ; {
		waiting, err := s.source.backlog(ctx)
		if err != nil {
			return err
		}
		if err := s.count(ctx); err != nil {
			return err
		}
		if s.result.Lost == 0 || s.source.exact && waiting == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d webhooks were not handled in %s: give a lower -rate or a longer -limit",
				s.result.Lost,
				s.plan.Limit)
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
