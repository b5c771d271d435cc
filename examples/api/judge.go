package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/watermill-spillway/spillway/examples/api/operator"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// result is what is counted in the end, by ids.
type result struct {
	By               string `json:"by"` // what closed the incident
	Messages         int    `json:"messages"`
	Failed           int    `json:"failed"`
	Applied          int    `json:"applied"`
	Discarded        int    `json:"discarded"`
	Lost             int    `json:"lost"`
	DuplicateEffects int    `json:"duplicate_effects"`
	AuditComplete    bool   `json:"audit_complete"`
	operator.Report
}

func (r result) check() error {
	if r.Lost+r.DuplicateEffects > 0 || !r.AuditComplete || r.Failed == 0 || r.Applied+r.Discarded != r.Messages {
		return fmt.Errorf("the incident is not closed: %+v", r)
	}
	return nil
}

// judge counts the effects and the record of each message.
func judge(ctx context.Context, db *sql.DB, store *letters.Store, kinds map[string]kind, r *result) error {
	applied, err := effects(ctx, db)
	if err != nil {
		return err
	}
	r.Messages, r.AuditComplete = len(kinds), true
	for id, k := range kinds {
		n := applied[id]
		r.Applied += min(n, 1)
		r.DuplicateEffects += max(0, n-1)
		events, err := store.Audit(ctx, letters.EventFilter{MessageIDs: []string{id}})
		if err != nil {
			return err
		}
		did := map[letters.EventKind]int{}
		for _, e := range events {
			did[e.Kind]++
			named := e.By == "ann" && e.Reason != ""
			if (e.Kind == letters.EventDiscarded || e.Kind == letters.EventRedriven || e.Kind == letters.EventEdited) &&
				!named {
				r.AuditComplete = false
			}
		}
		r.Discarded += min(did[letters.EventDiscarded], 1)
		if k != fine {
			r.Failed++
		}
		if n == 0 && did[letters.EventDiscarded] == 0 {
			r.Lost++
		}
		r.AuditComplete = r.AuditComplete && map[kind]bool{
			fine: len(events) == 0, cutShort: did[letters.EventDiscarded] == 1 && did[letters.EventRedriven] == 0,
			typo:       did[letters.EventEdited] > 0 && did[letters.EventRedriven] > 0,
			noCustomer: did[letters.EventRedriven] > 0,
			noLines:    did[letters.EventRedriven] > 0}[k]
	}
	return nil
}

// effects are how often each order was stored.
func effects(ctx context.Context, db *sql.DB) (counts map[string]int, err error) {
	rows, err := db.QueryContext(ctx, `SELECT id, COUNT(*) FROM orders GROUP BY id`)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	counts = map[string]int{}
	for rows.Next() {
		var id string
		var n int
		if err := rows.Scan(&id, &n); err != nil {
			return nil, err
		}
		counts[id] = n
	}
	return counts, rows.Err()
}
