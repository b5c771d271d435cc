package operate

import (
	"context"
	"errors"
	"strings"

	"github.com/watermill-spillway/spillway/delay"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/text/erasedtext"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/erasure"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Erase erases a person's data, or says what would be erased, in all tables that are in the database of the letters. It
// takes as long as ctx lasts, and the same call goes on. A request of the person's key that was done before is not done
// again: it is complete, without a report.
func (d *Desk) Erase(ctx context.Context, who Person, r erasure.Request) (report erasure.Report, complete bool,
	err error) {
	if r.DryRun {
		err = who.may(Act)
	} else {
		err = who.allowed(Approve)
	}
	if err != nil {
		return report, false, err
	}
	r.Act = campaigns.Act{By: who.Name, Reason: who.Reason}
	selector := erasedtext.Selector(r.IDs, r.Metadata)
	if act := who.once(erasedBy); !r.DryRun {
		r.Key = act.RedriveID
		done, err := d.before(ctx, act, func(e letters.Event) bool { return selectorOf(e) == selector })
		if err != nil {
			return report, false, err
		}
		if done != nil && strings.HasSuffix(done.Detail, noneLeft) {
			report.Selector = selector
			return report, true, nil
		}
	}
	stores, err := d.erasable(ctx)
	if err != nil {
		return report, false, err
	}
	report, err = erasure.Erase(ctx, stores, r)
	switch {
	case err == nil:
		return report, true, nil
	case report.Selector == "": // the request was refused
		return report, false, &Wrong{Why: strings.TrimPrefix(err.Error(), "erasure: ")}
	case errors.Is(err, erasure.ErrInHand), errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = nil
	}
	return report, false, err
}

// erasable opens all stores whose tables are in the database. It makes none.
func (d *Desk) erasable(ctx context.Context) (s erasure.Stores, err error) {
	s.Letters, s.Campaigns = d.Store, d.Campaigns
	tables, err := d.Tables(ctx)
	db, service := d.Store.Inside().DB(), d.Store.Inside().Service()
	if err == nil && tables["delayed"] > 0 {
		s.Delayed, err = delay.NewStore(ctx, db, service)
	}
	if err == nil && tables["keys"] > 0 {
		s.Keys, err = idempotency.NewStore(ctx, db, service)
	}
	return s, err
}

// ErasureID is the id of the erasure that a person's key names. Without a key there is none.
func ErasureID(who Person) string { return who.once(erasedBy).RedriveID }

// Erasure is what is on record of an erasure, by its id.
func (d *Desk) Erasure(ctx context.Context, id string) (ErasureData, error) {
	if !strings.HasPrefix(id, erasedBy) {
		return ErasureData{}, letters.ErrNotFound
	}
	v, err := d.erasure(ctx, id)
	d.mask(&v.Reason)
	return v, err
}

// noneLeft is how the record of an erasure ends that left nothing in hand.
const noneLeft = "; left 0 in hand"

// selectorOf is the hash of what an erasure looked for.
func selectorOf(e letters.Event) string {
	selector, _, _ := strings.Cut(e.Detail, ";")
	return strings.TrimPrefix(selector, "selector ")
}

func (d *Desk) erasure(ctx context.Context, id string) (v ErasureData, err error) {
	events, err := d.Store.Audit(ctx, letters.EventFilter{RedriveIDs: []string{id}, NewestFirst: true,
		Limit: letters.MaxLimit})
	if err == nil && len(events) == 0 {
		err = letters.ErrNotFound
	}
	if err != nil {
		return v, err
	}
	first := events[len(events)-1]
	v = ErasureData{ID: id, By: first.By, Reason: first.Reason, At: Stamp(first.At)}
	v.Selector = selectorOf(first)
	for _, e := range events { // the newest that has ended
		if _, did, _ := strings.Cut(e.Detail, "; "); did != "began" {
			v.Did, v.Complete = did, strings.HasSuffix(did, noneLeft)
			break
		}
	}
	return v, nil
}
