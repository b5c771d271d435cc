package campaigns

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// LeftOut are letters that a selection chooses and does not take.
type LeftOut struct {
	// Why is one of the constants NotAllowed, NoOrigin, InCampaign and Damaged.
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
	// Damaged is the reason of letters whose metadata cannot be read.
	Damaged = "damaged"
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

// target returns the topic that a letter goes to by a request, or why there is none. Without an allow-list any topic will do:
// a worker decides.
func (c *Campaigns) target(r *Request, l poison.Letter) (topic, why string) {
	if topic = r.To; topic == "" {
		topic = l.Origin.Topic
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

// pages reads the selection of a request in windows of Seq, and calls each with the letters of one and the Seq that it ends at,
// until each returns false. It begins behind after and ends at last.
func (c *Campaigns) pages(ctx context.Context, r *Request, after, last int64, each func(found []letters.Letter, end int64) (bool, error)) error {
	if len(r.Seqs) > 0 {
		return c.named(ctx, r, after, last, each)
	}
	f := r.Filter
	f.Limit, f.After = page, max(f.After, after)
	if f.MaxSeq == 0 || f.MaxSeq > last {
		f.MaxSeq = last
	}
	for {
		found, err := c.store.List(ctx, f)
		if err != nil || len(found) == 0 {
			return err
		}
		f.After = found[len(found)-1].Seq
		if more, err := each(found, f.After); err != nil || !more {
			return err
		}
	}
}

// named is pages for letters that the request names.
func (c *Campaigns) named(ctx context.Context, r *Request, after, last int64, each func([]letters.Letter, int64) (bool, error)) error {
	var found []letters.Letter
	flush := func() (bool, error) {
		if len(found) == 0 {
			return true, nil
		}
		more, err := each(found, found[len(found)-1].Seq)
		found = nil
		return more, err
	}
	for _, seq := range r.Seqs {
		if seq <= after || seq > last {
			continue
		}
		one, err := c.one(ctx, seq, r.Filter.Statuses)
		if err != nil {
			return err
		}
		if found = append(found, one...); len(found) >= 50 {
			if more, err := flush(); err != nil || !more {
				return err
			}
		}
	}
	_, err := flush()
	return err
}

// one returns the letter of a Seq, or none.
func (c *Campaigns) one(ctx context.Context, seq int64, statuses []letters.Status) ([]letters.Letter, error) {
	return c.store.List(ctx, letters.Filter{After: seq - 1, MaxSeq: seq, Statuses: statuses})
}

// hash is what a name of any length and bytes is known by.
func hash(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// size is about what a letter takes in memory.
func size(l *letters.Letter) int {
	n := len(l.Original.Payload)
	for key, value := range l.Original.Metadata {
		n += len(key) + len(value)
	}
	return n
}
