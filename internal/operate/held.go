package operate

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/breaker/sqlshare"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const (
	// Planned is how many letters a dry run reads at most. Of more it counts the first ones, and says so.
	Planned   = 5_000
	heldShown = 20 // campaigns that are named
)

// Held is who works on letters of a selection, or is about to.
type Held struct {
	Campaigns []HeldBy // the most letters first
	More      int      // campaigns that are not named
	Leased    int      // letters that a program works on now
	First     int      // how many letters were looked at, if there are more
}

// HeldBy is a campaign with letters of a selection.
type HeldBy struct {
	campaigns.Campaign
	Letters int
}

// Held finds out who has letters of a selection. It looks at the first ones, as many as a dry run reads.
func (d *Desk) Held(ctx context.Context, s Selection) (h Held, err error) {
	if h.Leased, err = d.leased(ctx, s); err == nil {
		err = d.inCampaigns(ctx, s, &h)
	}
	return h, err
}

// leased counts the letters of a selection that a program works on.
func (d *Desk) leased(ctx context.Context, s Selection) (n int, err error) {
	f := s.Filter
	f.Leased = true
	if len(s.Seqs) == 0 {
		return d.Store.Count(ctx, f)
	}
	f.After, f.MaxSeq = s.Seqs[0]-1, s.Seqs[len(s.Seqs)-1]
	_, err = d.each(ctx, f, func(heads []letters.Head) error {
		for _, h := range heads {
			if _, chosen := slices.BinarySearch(s.Seqs, h.Seq); chosen {
				n++
			}
		}
		return nil
	})
	return n, err
}

// inCampaigns finds the campaigns that have letters of a selection. Without an open campaign it reads no letter.
func (d *Desk) inCampaigns(ctx context.Context, s Selection, h *Held) error {
	open, err := d.Campaigns.List(ctx,
		campaigns.List{States: slices.DeleteFunc(slices.Clone(campaigns.States), campaigns.State.Ended), Limit: 1000})
	if err != nil || len(open) == 0 {
		return err
	}
	number := map[string]int{}
	count := func(seqs []int64) error {
		holding, err := hidden.Of(d.Campaigns).Holding(ctx, seqs...)
		for campaign := range maps.Values(holding) {
			number[campaign]++
		}
		return err
	}
	if len(s.Seqs) > 0 {
		err = count(s.Seqs)
	} else {
		h.First, err = d.each(ctx, s.Filter, func(heads []letters.Head) error {
			seqs := make([]int64, len(heads))
			for i, h := range heads {
				seqs[i] = h.Seq
			}
			return count(seqs)
		})
	}
	for _, one := range open {
		if n := number[one.ID]; n > 0 {
			h.Campaigns = append(h.Campaigns, HeldBy{one, n})
		}
	}
	slices.SortStableFunc(h.Campaigns, func(a, b HeldBy) int { return cmp.Compare(b.Letters, a.Letters) })
	h.More = max(0, len(h.Campaigns)-heldShown)
	h.Campaigns = h.Campaigns[:len(h.Campaigns)-h.More]
	return err
}

// each calls see with the first letters that a filter chooses, as many as a dry run reads. It returns their number if
// there may be more.
func (d *Desk) each(ctx context.Context, f letters.Filter, see func([]letters.Head) error) (first int, err error) {
	f.Limit = letters.MaxLimit
	for seen := 0; seen < Planned; {
		heads, err := d.Store.Heads(ctx, f)
		if err != nil || len(heads) == 0 {
			return 0, err
		}
		if err := see(heads); err != nil {
			return 0, err
		}
		seen, f.After = seen+len(heads), heads[len(heads)-1].Seq
	}
	return Planned, nil
}

// ErrNoOutages is the error of a service whose breakers share nothing in the database of the letters.
var ErrNoOutages = errors.New("the breakers of this service share no outages in the database of its letters: set " +
	"Config.Breaker.Store to a store of sqlshare.NewStore there")

// outages opens what the breakers share. It makes no table.
func (d *Desk) outages(ctx context.Context) (*sqlshare.Store, error) {
	tables, err := d.Tables(ctx)
	if err != nil {
		return nil, err
	}
	if tables["outages"] == 0 {
		return nil, ErrNoOutages
	}
	db, service := d.on()
	return sqlshare.NewStore(ctx, db, service)
}

// Outages returns the outages and freezes that the instances share.
func (d *Desk) Outages(ctx context.Context) ([]breaker.Status, error) {
	store, err := d.outages(ctx)
	if err != nil {
		return nil, err
	}
	all, err := store.List(ctx)
	return d.held(all), err
}

// held are handlers whose messages are held, as they may be shown.
func (d *Desk) held(all []breaker.Status) []breaker.Status {
	for i := range all {
		d.mask(&all[i].Reason, &all[i].Cause, &all[i].Scope)
	}
	return all
}

// Hold freezes a handler in all instances, or all handlers without a name, or ends that. It reports false if there was
// no freeze to end, and if a request of the person's key did it before.
func (d *Desk) Hold(ctx context.Context, who Person, handler string, hold bool) (changed bool, err error) {
	if err := who.allowed(Act); err != nil {
		return false, err
	}
	if database.Column(handler) != handler {
		return false, WrongValue("handler", handler, "a name has at most 255 bytes of readable text")
	}
	act, of := who.once(heldBy), "all handlers"
	if handler != "" {
		of = "the handler " + handler
	}
	if act.Detail = "released: " + of; hold {
		act.Detail = "held: " + of
	}
	if done, err := d.did(ctx, act); done || err != nil {
		return false, err
	}
	store, err := d.outages(ctx)
	if err != nil {
		return false, err
	}
	if changed = true; hold {
		err = store.Freeze(ctx, handler, who.Reason, who.Name)
	} else {
		changed, err = store.Release(ctx, handler, who.Reason, who.Name)
	}
	if err == nil && changed && d.Store != nil {
		err = hidden.Of(d.Store).RecordFreeze(ctx, act)
	}
	return changed, err
}

// BreakLeases takes letters away from programs that are gone. It returns the letters, also if a request of the person's
// key took them before.
func (d *Desk) BreakLeases(ctx context.Context, who Person, seqs []int64) (broken []int64, err error) {
	if err := who.allowed(Act); err != nil {
		return nil, err
	}
	s, err := SelectionOf(seqs)
	if err != nil {
		return nil, err
	}
	act := who.once(brokenBy)
	done, err := d.before(ctx, act, func(e letters.Event) bool { return slices.Contains(s.Seqs, e.Seq) })
	if err != nil {
		return nil, err
	}
	if done == nil {
		return hidden.Of(d.Store).BreakLeases(ctx, act, s.Seqs...)
	}
	events, err := d.Store.Audit(ctx, letters.EventFilter{RedriveIDs: []string{act.RedriveID}, Limit: letters.MaxLimit})
	for _, e := range events {
		broken = append(broken, e.Seq)
	}
	return broken, err
}
