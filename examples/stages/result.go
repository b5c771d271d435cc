package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Result is the line that the example ends with.
type Result struct {
	Published           int     `json:"published"`             // deliveries, duplicates included
	Applied             int     `json:"applied"`               // events stored before the redrive
	DuplicatesAbsorbed  int     `json:"duplicates_absorbed"`   // deliveries of events that were stored already
	Refusals            int     `json:"refusals"`              // look-ups that the downstream refused
	Retries             int     `json:"retries"`               // with -blocking: invocations after the first
	Staged              int     `json:"staged"`                // entries into a stage
	Reentered           int     `json:"reentered"`             // messages that came back from one, or from a redrive
	DeadLettered        int     `json:"dead_lettered"`         // letters before the redrive
	Redriven            int     `json:"redriven"`              // letters that were published again
	AppliedAfterRedrive int     `json:"applied_after_redrive"` // events stored after the redrive
	Remaining           int     `json:"remaining"`             // letters in the end
	Outputs             int     `json:"outputs"`               // different summaries received
	LivePerSWhileDown   float64 `json:"live_per_s_while_down"` // events stored that need no downstream
	LivePerSAfter       float64 `json:"live_per_s_after"`      // the same, from the recovery to the end of publishing
	// the same while it was down, behind the first that needs it
	LiveBehindFailure int `json:"live_behind_first_failure"`
	Unhandled         int `json:"unhandled"` // deliveries that were still in the topic in the end
	// events neither stored, set aside nor unhandled, and summaries that never came
	Lost             int `json:"lost"`
	DuplicateEffects int `json:"duplicate_effects"` // rows beyond the first of an event
}

// Good reports whether nothing was lost and nothing happened twice.
func (r Result) Good() bool { return r.Lost == 0 && r.DuplicateEffects == 0 }

// JSON is the result on one line.
func (r Result) JSON() string {
	line, _ := json.Marshal(r) // a struct of numbers
	return string(line)
}

// effects are what is stored: all events, and those that need no downstream.
type effects struct{ all, live int }

func (p *Plan) effects(ctx context.Context, db *sql.DB) (e effects, err error) {
	kinds := make([]any, len(p.Needs))
	for i, kind := range p.Needs {
		kinds[i] = kind
	}
	count := `SELECT count(*), count(CASE WHEN event IN (?` + strings.Repeat(`, ?`, len(kinds)-1) +
		`) THEN NULL ELSE 1 END) FROM events`
	if err = db.QueryRowContext(ctx, p.Bind(count), kinds...).Scan(&e.all, &e.live); err != nil {
		return e, fmt.Errorf("count the stored events: %w", err)
	}
	return e, nil
}

// perSecond is rounded for the reader.
func perSecond(n int, d time.Duration) float64 {
	return math.Round(10*float64(n)/max(d.Seconds(), 0.1)) / 10
}

// conclude fills in the rest, and compares, id by id, what is there with what was published. Nothing is promised
// of the deliveries that are unhandled: in a topic of one partition those are the last.
func (r *Result) conclude(ctx context.Context, c *consumer, d *downstream, tally *webhooks.Tally,
	store *letters.Store) error {
	tally.Absorbed.Store(c.absorbed.Load())
	all := webhooks.Result{Applied: r.Applied}
	if err := tally.After(ctx, &all, c.plan.deliveries[:len(c.plan.deliveries)-r.Unhandled], c.db, store); err != nil {
		return err
	}
	r.Published = len(c.plan.deliveries)
	r.DuplicatesAbsorbed = all.DuplicatesAbsorbed
	r.AppliedAfterRedrive = all.AppliedAfterRedrive
	r.Remaining, r.Outputs = all.Remaining, all.Outputs
	r.Lost, r.DuplicateEffects = all.Lost, all.DuplicateEffects
	r.Refusals, r.Retries = int(d.refused.Load()), int(c.retries.Load())
	r.Staged, r.Reentered = int(c.staged.Load()), int(c.reenters.Load())
	return nil
}
