package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// result is the line that the demo ends with.
type result struct {
	Messages         int     `json:"messages"`
	DeadLettered     int     `json:"dead_lettered"`
	Causes           int     `json:"causes"`
	FailedAgain      int     `json:"failed_again"`
	Redriven         int     `json:"redriven"`
	Succeeded        int     `json:"succeeded"`
	Edited           int     `json:"edited"`
	Discarded        int     `json:"discarded"`
	Applied          int     `json:"applied"`
	Remaining        int     `json:"remaining"`
	Killed           int     `json:"service_killed"`
	Commands         int     `json:"commands"`
	Lost             int     `json:"lost"`
	DuplicateEffects int     `json:"duplicate_effects"`
	AuditComplete    bool    `json:"audit_complete"`
	Seconds          float64 `json:"seconds"`
}

// check returns an error for a result that no run may have.
func (r result) check() error {
	line, _ := json.Marshal(r) // a struct of numbers
	switch {
	case r.Lost > 0 || r.DuplicateEffects > 0 || r.Remaining > 0:
		return fmt.Errorf("something was lost, happened twice, or is left: %s", line)
	case !r.AuditComplete:
		return fmt.Errorf("the record is not complete: %s", line)
	case r.Applied+r.Discarded != r.Messages || r.Succeeded != r.Redriven || r.Causes != 4 || r.Killed != 1 ||
		r.FailedAgain == 0 || r.Edited == 0:
		return fmt.Errorf("the sums are wrong: %s", line)
	}
	return nil
}

// judge counts by id what became of each message. A letter that failed is on record as redriven and then applied, or as
// discarded.
func judge(ctx context.Context, db *sql.DB, store *letters.Store, in *input, r *result) error {
	applied, err := effects(ctx, db)
	if err != nil {
		return err
	}
	record, err := recorded(ctx, store)
	if err != nil {
		return err
	}
	waiting, err := waits(ctx, store)
	if err != nil {
		return err
	}
	r.AuditComplete = true
	for id, k := range in.kinds {
		n := applied[id]
		r.Applied += min(n, 1)
		r.DuplicateEffects += max(0, n-1)
		events := record[id]
		r.Edited += min(events[letters.EventEdited], 1)
		r.Discarded += min(events[letters.EventDiscarded], 1)
		r.Redriven += min(events[letters.EventRedriven], 1)
		r.Succeeded += min(events[letters.EventSucceeded], 1)
		if n == 0 && events[letters.EventDiscarded] == 0 && !waiting[id] {
			r.Lost++
		}
		complete := k == fine && len(events) == 0 ||
			k == cutShort && events[letters.EventDiscarded] == 1 && events[letters.EventRedriven] == 0 ||
			k == typo && events[letters.EventEdited] > 0 && events[letters.EventRedriven] > 0 ||
			(k == noRepository || k == noAssets) && events[letters.EventRedriven] > 0
		r.AuditComplete = r.AuditComplete && complete
	}
	r.Messages = len(in.messages)
	r.Remaining, err = store.Count(ctx, letters.Filter{})
	return err
}

// waits are the ids of the letters that wait.
func waits(ctx context.Context, store *letters.Store) (map[string]bool, error) {
	ids, f := map[string]bool{}, letters.Filter{Limit: letters.MaxLimit}
	for {
		page, err := store.Heads(ctx, f)
		if err != nil || len(page) == 0 {
			return ids, err
		}
		for _, head := range page {
			ids[head.MessageID] = true
		}
		f.After = page[len(page)-1].Seq
	}
}

// effects are how often each message was stored.
func effects(ctx context.Context, db *sql.DB) (map[string]int, error) {
	rows, err := db.QueryContext(ctx, `SELECT id FROM events`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	counts := map[string]int{}
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		counts[id]++
	}
	return counts, rows.Err()
}

// recorded is the record of changes by message and kind. Every entry must name who did it, and why.
func recorded(ctx context.Context, store *letters.Store) (map[string]map[letters.EventKind]int, error) {
	record := map[string]map[letters.EventKind]int{}
	f := letters.EventFilter{Limit: letters.MaxLimit}
	for {
		page, err := store.Audit(ctx, f)
		if err != nil || len(page) == 0 {
			return record, err
		}
		for _, e := range page {
			if record[e.MessageID] == nil {
				record[e.MessageID] = map[letters.EventKind]int{}
			}
			record[e.MessageID][e.Kind]++
			if (e.Kind == letters.EventRedriven || e.Kind == letters.EventDiscarded) && (e.By == "" || e.Reason == "") {
				return nil, errors.New("an entry of the record does not say who did it, or why")
			}
		}
		f.After = page[len(page)-1].Number
	}
}
