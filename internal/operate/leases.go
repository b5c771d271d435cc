package operate

import (
	"context"
	"slices"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

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
		return d.Store.Inside().BreakLeases(ctx, act, s.Seqs...)
	}
	events, err := d.Store.Audit(ctx, letters.EventFilter{RedriveIDs: []string{act.RedriveID}, Limit: letters.MaxLimit})
	for _, e := range events {
		broken = append(broken, e.Seq)
	}
	return broken, err
}
