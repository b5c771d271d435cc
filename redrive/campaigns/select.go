package campaigns

import (
	"cmp"
	"context"
	"slices"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// LeftOut are letters that a selection chooses and does not take.
type LeftOut struct {
	// Why is one of the constants NotAllowed, NoOrigin, InCampaign, Discarded, Erased, CameBack and NewerWaits.
	Why string `json:"why"`
	// Topic is the topic that is not allowed. Campaign is the id of the campaign that has the letters.
	Topic    string `json:"topic,omitempty"`
	Campaign string `json:"campaign,omitempty"`
	Letters  int    `json:"letters"`
}

// Why letters are left out.
const (
	// NotAllowed is the reason of letters whose topic is not in Config.Allow.
	NotAllowed = "not_allowed"
	// NoOrigin is the reason of letters that no origin topic is known of, in a campaign without Request.To.
	NoOrigin = "no_origin"
	// InCampaign is the reason of letters that another campaign has.
	InCampaign = "in_campaign"
	// Discarded is the reason of letters that a person gave up. letters.Store.MarkAll restores them.
	Discarded = "discarded"
	// Erased is the reason of letters that have no message any more.
	Erased = "erased"
	// CameBack is the reason of letters that a policy leaves to a person: a redrive brought their message back before.
	CameBack = "came_back"
	// NewerWaits is the reason of letters that failed again, and whose message has a newer letter that can be redriven:
	// both would publish it twice.
	NewerWaits = "newer_waits"
)

// maxLeftOut is how many different reasons are kept. Topics come with messages, and may be many.
const maxLeftOut = 50

// leftOut counts letters by reason.
type leftOut []LeftOut

func (l *leftOut) add(why, topic, campaign string, n int) {
	topic = logged(topic)
	for i := range *l {
		if o := &(*l)[i]; o.Why == why && o.Topic == topic && o.Campaign == campaign {
			o.Letters += n
			return
		}
	}
	if len(*l) >= maxLeftOut-4 && (topic != "" || campaign != "") { // the rest of a reason together
		l.add(why, "", "", n)
		return
	}
	*l = append(*l, LeftOut{why, topic, campaign, n})
}

func (l leftOut) sorted() []LeftOut {
	slices.SortStableFunc(l, func(a, b LeftOut) int { return cmp.Compare(b.Letters, a.Letters) })
	return l
}

// redrivable reports whether a redrive may take letters of the status.
func redrivable(status letters.Status) bool {
	return status != letters.StatusDiscarded && status != letters.StatusErased
}

// takes returns the topic that a letter in the store goes to by a request, or why the request does not take the letter.
func (c *Campaigns) takes(r *Request, status letters.Status, origin string) (topic, why string) {
	switch {
	case status == letters.StatusErased:
		return "", Erased
	case !redrivable(status):
		return "", Discarded
	}
	return c.target(r, origin)
}

// target returns the topic that a letter goes to by a request, or why there is none. Without an allow-list any topic
// will do: a worker decides.
func (c *Campaigns) target(r *Request, origin string) (topic, why string) {
	if topic = r.To; topic == "" {
		topic = origin
	}
	switch {
	case topic == "":
		return "", NoOrigin
	case len(c.config.Allow) > 0 && !slices.Contains(c.config.Allow, topic):
		return topic, NotAllowed
	}
	return topic, ""
}

// page is how many letters are looked at in one statement.
const page = 500

// source is where a selection is read from: whole letters, or their heads.
type source[L any] struct {
	list func(context.Context, letters.Filter) ([]L, error)
	seq  func(*L) int64
}

func (c *Campaigns) heads() source[letters.Head] {
	return source[letters.Head]{c.store.Heads, func(h *letters.Head) int64 { return h.Seq }}
}

func (c *Campaigns) whole() source[letters.Letter] {
	return source[letters.Letter]{c.store.List, func(l *letters.Letter) int64 { return l.Seq }}
}

// pages reads the selection of a request in windows of Seq, and calls each with the letters of one and the Seq that it
// ends at, until each returns false. It begins behind after and ends at last.
func (s source[L]) pages(ctx context.Context, r *Request, after, last int64,
	each func(found []L, end int64) (bool, error)) error {
	if len(r.Seqs) > 0 {
		return s.named(ctx, r, after, last, each)
	}
	f := r.Filter
	f.Limit, f.After = page, max(f.After, after)
	if f.MaxSeq == 0 || f.MaxSeq > last {
		f.MaxSeq = last
	}
	for {
		found, err := s.list(ctx, f)
		if err != nil || len(found) == 0 {
			return err
		}
		f.After = s.seq(&found[len(found)-1])
		if more, err := each(found, f.After); err != nil || !more {
			return err
		}
	}
}

// named is pages for letters that the request names.
func (s source[L]) named(ctx context.Context, r *Request, after, last int64,
	each func([]L, int64) (bool, error)) error {
	for seqs := range slices.Chunk(r.Seqs, 50) {
		var found []L
		for _, seq := range seqs {
			if seq <= after || seq > last {
				continue
			}
			one, err := s.list(ctx, letters.Filter{After: seq - 1, MaxSeq: seq, Statuses: r.Filter.Statuses})
			if err != nil {
				return err
			}
			found = append(found, one...)
		}
		if len(found) == 0 {
			continue
		}
		if more, err := each(found, s.seq(&found[len(found)-1])); err != nil || !more {
			return err
		}
	}
	return nil
}
