package main

import (
	"context"
	"encoding/json"

	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
)

// Result is the line that the example ends with.
type Result struct {
	Published int `json:"published"` // deliveries, duplicates included
	Handled   int `json:"handled"`   // webhooks that were delivered and stored
	// deliveries that were published while the downstream was unavailable
	MessagesDuring int `json:"messages_during"`
	CallsDuring    int `json:"calls_during"` // calls to the downstream while it was unavailable
	Probes         int `json:"probes"`       // of the breaker
	// from its return until as many were handled as are published
	SecondsToFullRate *float64 `json:"seconds_to_full_rate_after"`
	DeadLettered      int      `json:"dead_lettered"`                   // all letters
	CutShort          int      `json:"dead_lettered_for_what_they_are"` // letters of webhooks that were cut short
	DeadLetteredByIt  int      `json:"dead_lettered_by_outage"`         // letters of healthy webhooks
	DuplicateEffects  int      `json:"duplicate_effects"`               // rows beyond the first of a webhook
	Lost              int      `json:"lost"`                            // webhooks neither stored nor set aside
}

// Good reports whether the promise was kept: the outage dead-lettered nothing, nothing was lost, nothing happened
// twice.
func (r Result) Good() bool { return r.DeadLetteredByIt == 0 && r.Lost == 0 && r.DuplicateEffects == 0 }

// JSON returns the result on one line.
func (r Result) JSON() string {
	line, _ := json.Marshal(r) // a struct of numbers
	return string(line)
}

// figure returns what the benchmarks report of the run.
func (r Result) figure() string {
	line, _ := json.Marshal(struct {
		Figure            string   `json:"figure"`
		MessagesDuring    int      `json:"messages_during"`
		CallsDuring       int      `json:"calls_during"`
		DeadLettered      int      `json:"dead_lettered"`
		SecondsToFullRate *float64 `json:"seconds_to_full_rate_after"`
	}{"outage", r.MessagesDuring, r.CallsDuring, r.DeadLetteredByIt, r.SecondsToFullRate})
	return string(line)
}

// count compares, id by id, what is stored and set aside with what was published.
func (s *history) count(ctx context.Context) error {
	r := &s.result
	stored, err := webhooks.Stored(s.source.db)
	if err != nil {
		return err
	}
	letters, n, err := webhooks.Remaining(ctx, s.service.channel.Letters())
	if err != nil {
		return err
	}
	r.Published, r.Handled, r.DeadLettered = len(s.plan.deliveries), len(stored), n
	r.CutShort, r.DeadLetteredByIt, r.DuplicateEffects, r.Lost = 0, 0, 0, 0
	for id := range letters {
		if s.plan.poisoned[id] {
			r.CutShort++
		} else {
			r.DeadLetteredByIt++
		}
	}
	seen := map[string]bool{}
	for _, msg := range s.plan.deliveries {
		if seen[msg.UUID] {
			continue
		}
		seen[msg.UUID] = true
		r.DuplicateEffects += max(0, stored[msg.UUID]-1)
		if stored[msg.UUID] == 0 && !letters[msg.UUID] {
			r.Lost++
		}
	}
	return nil
}
