package crash

import (
	"context"
	"fmt"
	"os"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/redrive"
)

// deploy replaces the consumer by one with the fix, and brings the letters back.
func (s *history) deploy(ctx context.Context, result *webhooks.Result) error {
	if err := s.end(); err != nil {
		return err
	}
	fmt.Println("The fix is deployed: events of organisations are known, releases need no assets, the downstream is up.")
	s.Fixed = true
	if err := s.begin(); err != nil {
		return err
	}
	report, err := redrive.Drain(ctx, s.letters, s.Live,
		redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{s.Topic}, Rate: 50, By: "demo"}})
	if err != nil {
		return err
	}
	result.Redriven = report.Redriven
	return s.settle(ctx, "redriven", report.Redriven)
}

// conclude waits for the summaries and counts by id.
func (s *history) conclude(ctx context.Context, result *webhooks.Result, deliveries []*message.Message) error {
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
	duplicates, err := s.happened(absorbed)
	if err != nil {
		return err
	}
	retries, err := s.happened(retry)
	if err != nil {
		return err
	}
	s.tally.Absorbed.Store(duplicates)
	s.tally.Retries.Store(retries)
	return s.tally.After(ctx, result, deliveries, s.db, s.letters)
}
