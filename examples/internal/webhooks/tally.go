package webhooks

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Result is the line that an example ends with.
type Result struct {
	Published           int `json:"published"`             // deliveries, duplicates included
	Applied             int `json:"applied"`               // events stored before the fix
	DuplicatesAbsorbed  int `json:"duplicates_absorbed"`   // deliveries of events that were stored already
	Retries             int `json:"retries"`               // handler invocations after the first
	Invalid             int `json:"invalid"`               // dead letters of class invalid before the redrive
	DeadLettered        int `json:"dead_lettered"`         // all dead letters before the redrive
	Redriven            int `json:"redriven"`              // letters that were published again
	AppliedAfterRedrive int `json:"applied_after_redrive"` // events stored after the fix
	Remaining           int `json:"remaining"`             // dead letters in the end
	Outputs             int `json:"outputs"`               // different summaries received
	// events neither stored nor set aside, and summaries that never came
	Lost             int `json:"lost"`
	DuplicateEffects int `json:"duplicate_effects"` // rows beyond the first of an event
}

// Good reports whether nothing was lost and nothing happened twice.
func (r Result) Good() bool { return r.Lost == 0 && r.DuplicateEffects == 0 }

// Check returns an error that names what the result of a whole run, with every kind of fault in it, cannot be:
// something lost or twice, a kind of fault that never came, or a sum that is not the number of events.
func (r Result) Check(events int) error {
	counts := map[string]int{}
	if err := json.Unmarshal([]byte(r.JSON()), &counts); err != nil {
		return err
	}
	for name, n := range counts {
		if bad := name == "lost" || name == "duplicate_effects"; bad != (n == 0) {
			return fmt.Errorf("%s is %d: %s", name, n, r.JSON())
		}
	}
	if r.Applied+r.DeadLettered != events || r.Applied+r.AppliedAfterRedrive+r.Remaining != events {
		return fmt.Errorf("the sums are not %d: %s", events, r.JSON())
	}
	return nil
}

// JSON is the result on one line.
func (r Result) JSON() string {
	line, _ := json.Marshal(r) // a struct of ints
	return string(line)
}

// Tally counts what happens while an example runs.
type Tally struct {
	Applied, Absorbed, Retries, SetAside atomic.Int64

	mu        sync.Mutex
	summaries map[string]string // id of the summary by id of its event
	outputs   map[string]bool
}

// Settled is how many deliveries came to an end: applied, absorbed or set aside.
func (t *Tally) Settled() int {
	return int(t.Applied.Load() + t.Absorbed.Load() + t.SetAside.Load())
}

// Receive notes a summary. It is a handler for the topic of the outputs.
func (t *Tally) Receive(msg *message.Message) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.summaries == nil {
		t.summaries, t.outputs = map[string]string{}, map[string]bool{}
	}
	t.summaries[msg.Metadata.Get(SummaryOfKey)] = msg.UUID
	t.outputs[msg.UUID] = true
	return nil
}

// Outputs is how many different summaries were received.
func (t *Tally) Outputs() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.outputs)
}

// Before fills in what there is before the redrive.
func (t *Tally) Before(ctx context.Context, r *Result, db *sql.DB, store *letters.Store) (err error) {
	counts, err := Stored(db)
	if err != nil {
		return err
	}
	r.Applied = len(counts)
	if r.DeadLettered, err = store.Count(ctx, letters.Filter{}); err != nil {
		return err
	}
	r.Invalid, err = store.Count(ctx, letters.Filter{Classes: []classify.Class{classify.ClassInvalid}})
	return err
}

// Remaining returns the ids of the letters that wait, page by page, and how many letters there are.
func Remaining(ctx context.Context, store *letters.Store) (ids map[string]bool, n int, err error) {
	ids = map[string]bool{}
	for page := (letters.Filter{Limit: letters.MaxLimit}); ; {
		entries, err := store.List(ctx, page)
		if err != nil {
			return nil, 0, err
		}
		for _, entry := range entries {
			ids[entry.Letter.Original.UUID] = true
			page.After = entry.Seq
		}
		n += len(entries)
		if len(entries) == 0 {
			return ids, n, nil
		}
	}
}

// After fills in what there is in the end, and compares it, id by id, with what was published.
func (t *Tally) After(ctx context.Context, r *Result, published []*message.Message, db *sql.DB,
	store *letters.Store) error {
	counts, err := Stored(db)
	if err != nil {
		return err
	}
	waiting, remaining, err := Remaining(ctx, store)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := map[string]bool{}
	for _, msg := range published {
		id := msg.UUID
		if seen[id] {
			continue
		}
		seen[id] = true
		switch {
		case counts[id] == 0 && !waiting[id]:
			r.Lost++
		case counts[id] > 0 && t.summaries[id] == "":
			r.Lost++
		}
		if counts[id] > 1 {
			r.DuplicateEffects += counts[id] - 1
		}
	}
	r.Published = len(published)
	r.AppliedAfterRedrive = len(counts) - r.Applied
	r.DuplicatesAbsorbed = int(t.Absorbed.Load())
	r.Retries = int(t.Retries.Load())
	r.Remaining = remaining
	r.Outputs = len(t.outputs)
	return nil
}
