package crash

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/redrive"
)

// settle waits until nothing is on its way any more: what total deliveries brought about is in the database.
func (s *story) settle(ctx context.Context, what string, total int) error {
	var failed error
	err := webhooks.Progress(ctx, os.Stdout, what, total, func() int {
		backlog, err := s.Backlog(ctx)
		if failed = errors.Join(err, s.consumer.alive()); failed != nil {
			return total
		}
		return max(total-backlog, 0)
	})
	return errors.Join(err, failed)
}

// deploy replaces the consumer by one with the fix, and brings the letters back.
func (s *story) deploy(ctx context.Context, result *webhooks.Result) error {
	old := s.consumer
	s.consumer = nil
	if err := old.stop(); err != nil {
		return err
	}
	fmt.Println("The fix is deployed: events of organisations are known, releases need no assets, the downstream is up.")
	fixed := s.Setting
	fixed.Fixed = true
	var err error
	if s.consumer, err = start(fixed); err != nil {
		return err
	}
	report, err := s.letters.Drain(ctx, s.Live, redrive.DrainConfig{Allow: []string{s.Topic}, Rate: 50, By: "demo"})
	if err != nil {
		return err
	}
	result.Redriven = report.Redriven
	return s.settle(ctx, "redriven", report.Redriven)
}

// conclude waits for the summaries and counts by id.
func (s *story) conclude(ctx context.Context, result *webhooks.Result, deliveries []*message.Message) error {
	stored, err := applied(s.db)
	if err != nil {
		return err
	}
	if err := webhooks.Progress(ctx, os.Stdout, "summaries", stored, s.tally.Outputs); err != nil {
		return err
	}
	if err := webhooks.Table(ctx, os.Stdout, "Dead letters that remain", s.letters); err != nil {
		return err
	}
	absorbed, err := happened(s.db, Absorbed)
	if err != nil {
		return err
	}
	retries, err := happened(s.db, Retry)
	if err != nil {
		return err
	}
	s.tally.Absorbed.Store(absorbed)
	s.tally.Retries.Store(retries)
	return s.tally.After(ctx, result, deliveries, s.db, s.letters)
}
