package campaigns

import (
	"context"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// again is a letter of which a campaign asks whether its message has a newer one.
type again struct {
	seq                int64
	id, topic, handler string
}

// newer returns those letters that have a newer one of the same message, from the same handler, which can still be
// redriven: both would publish the message twice.
func (c *Campaigns) newer(ctx context.Context, all []again) (map[int64]bool, error) {
	f := letters.Filter{Limit: letters.MaxLimit,
		Statuses: []letters.Status{letters.StatusWaiting, letters.StatusRefused, letters.StatusQuarantined}}
	for _, l := range all {
		if l.id != "" {
			f.IDs = append(f.IDs, l.id)
		}
	}
	older := make(map[int64]bool)
	for len(f.IDs) > 0 {
		found, err := c.store.Heads(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, h := range found {
			for _, l := range all {
				if h.Seq > l.seq && h.MessageID == l.id && h.Topic == l.topic && h.Handler == l.handler {
					older[l.seq] = true
				}
			}
		}
		if len(found) < f.Limit {
			break
		}
		f.After = found[len(found)-1].Seq
	}
	return older, nil
}

func (c *Campaigns) newerOfHeads(ctx context.Context, found []letters.Head) (map[int64]bool, error) {
	var all []again
	for _, l := range found {
		if l.Status == letters.StatusFailedAgain {
			all = append(all, again{l.Seq, l.MessageID, l.Topic, l.Handler})
		}
	}
	return c.newer(ctx, all)
}

func (c *Campaigns) newerOfLetters(ctx context.Context, found []letters.Letter) (map[int64]bool, error) {
	var all []again
	for _, l := range found {
		if l.Status == letters.StatusFailedAgain {
			all = append(all, again{l.Seq, l.Original.UUID, l.Origin.Topic, l.Origin.Handler})
		}
	}
	return c.newer(ctx, all)
}
