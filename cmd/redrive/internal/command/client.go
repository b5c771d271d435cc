package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strconv"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/apiclient"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/erasure"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func number[N int | int64](n N) string { return strconv.FormatInt(int64(n), 10) }

// act does something once, for a reason that stands on record.
func (d *desk) act(ctx context.Context, out, body any, path ...string) error {
	return d.Post(ctx, out, apiclient.NewKey(), body, path...)
}

// why is a body with a reason alone.
func why(reason string) operate.ReasonBody { return operate.ReasonBody{Reason: reason} }

// causes returns a page of causes, masked.
func (d *desk) causes(ctx context.Context, q url.Values) ([]operate.CauseData, error) {
	var page operate.CausesData
	err := d.Get(ctx, &page, q, "causes")
	return page.Causes, err
}

// Heads returns letters, masked.
func (d *desk) Heads(ctx context.Context, f letters.Filter) ([]operate.LetterData, error) {
	q := operate.FilterValues(f)
	onPage(q, f.NewestFirst, f.After, f.Limit)
	var page operate.LettersData
	err := d.Get(ctx, &page, q, "letters")
	return page.Letters, err
}

// onPage says which page of a list.
func onPage(q url.Values, newest bool, after int64, limit int) {
	if q.Set("order", "oldest"); newest {
		q.Set("order", "newest")
	}
	if after > 0 {
		q.Set("after", number(after))
	}
	if limit > 0 {
		q.Set("limit", number(limit))
	}
}

// Letter returns a letter with its record, masked.
func (d *desk) Letter(ctx context.Context, seq int64) (v operate.WholeData, err error) {
	err = d.GetItem(ctx, &v, nil, "letters", number(seq))
	return v, err
}

// Unmasked returns a letter with the exact bytes of its payload, which is on record then.
func (d *desk) Unmasked(ctx context.Context, reason string, seq int64) (v operate.WholeData, err error) {
	exact, err := d.PostBytes(ctx, apiclient.NewKey(), why(reason), "letters", number(seq), "payload")
	if err != nil {
		return v, err
	}
	v, err = d.Letter(ctx, seq)
	v.Payload, v.PayloadB64, v.PayloadBytes = nil, nil, len(exact)
	v.Carry(exact)
	return v, err
}

// errNotCounted is the error of letters that cannot be counted in time.
var errNotCounted = errors.New("the server could not count these letters in time: choose fewer")

// Freeze selects the letters that a filter chooses now.
func (d *desk) Freeze(ctx context.Context, f letters.Filter) (operate.Selection, error) {
	var v operate.CountData
	err := d.Get(ctx, &v, operate.FilterValues(f), "letters", "count")
	if err == nil && (!v.Counted || v.Count == nil) {
		err = apiclient.Lasts(errNotCounted)
	}
	if err != nil {
		return operate.Selection{}, err
	}
	f.MaxSeq = v.MaxSeq
	return operate.Selection{Filter: f, Number: *v.Count}, nil
}

// Decide marks the letters of a selection. A server does as many in one request as it has time for: the same key goes
// on.
func (d *desk) Decide(ctx context.Context, what operate.Decision, s operate.Selection, reason string) (n int, err error) {
	body := operate.DecideBody{ReasonBody: why(reason), Seqs: s.Seqs}
	if len(s.Seqs) == 0 {
		body.Filter = &s.Filter
	}
	for key := apiclient.NewKey(); ; {
		var v operate.DecidedData
		err := d.Post(ctx, &v, key, body, what.Name+"s")
		if errors.Is(err, campaigns.ErrNoLetters) {
			return n, nil
		}
		if err == nil && v.Letters != nil {
			n = *v.Letters
		}
		if err != nil || v.Complete {
			return n, err
		}
	}
}

// Plan says what a campaign would do. The server looks at no more letters than it has time for.
func (d *desk) Plan(ctx context.Context, r campaigns.Request) (v operate.PlanData, err error) {
	err = d.Post(ctx, &v, "", startOf(r), "plan")
	for i := range v.Sample {
		if edited := v.Sample[i].Edited; edited != nil {
			edited.Mask = maskOf(edited)
		}
	}
	return v, err
}

// maskOf lays the masks of the person over what the server has masked.
func maskOf(edited *inside.Diff) func(*privacy.Redactor) *inside.Diff {
	return func(r *privacy.Redactor) *inside.Diff {
		m := *edited
		m.Refused, m.Before, m.After = r.Text(m.Refused), r.Payload(m.Before), r.Payload(m.After)
		if m.Before != nil && bytes.Equal(m.Before, m.After) {
			m.Withheld = "only values change that are masked"
		}
		m.Metadata = slices.Clone(m.Metadata)
		for i := range m.Metadata {
			k := &m.Metadata[i]
			for _, value := range []**string{&k.Before, &k.After} {
				if *value != nil {
					masked := r.Metadata(k.Key, **value)
					*value = &masked
				}
			}
		}
		return &m
	}
}

// startBody leaves out the name of the person, whom the server knows.
type startBody struct {
	operate.StartBody
	By *string `json:"by,omitempty"`
}

func startOf(r campaigns.Request) startBody {
	r.ID = ""
	return startBody{StartBody: operate.StartBody{RequestData: operate.DataOfRequest(r), Filter: &r.Filter}}
}

// Campaign returns a campaign with its record, masked.
func (d *desk) Campaign(ctx context.Context, id string) (v operate.CampaignRecord, err error) {
	err = d.GetItem(ctx, &v, nil, "campaigns", id)
	return v, err
}

// campaigns returns a page of campaigns, masked.
func (d *desk) campaigns(ctx context.Context, q url.Values) ([]operate.CampaignData, error) {
	var page operate.CampaignsData
	err := d.Get(ctx, &page, q, "campaigns")
	return page.Campaigns, err
}

// Erase erases a person's data. A server does as much in one request as it has time for: the same key goes on.
func (d *desk) Erase(ctx context.Context, r erasure.Request) (all erasure.Report, err error) {
	body := operate.ErasureBody{ReasonBody: why(r.Reason), IDs: r.IDs, Metadata: r.Metadata,
		RemoveKeys: r.RemoveKeys, ForgetIDs: r.ForgetIDs}
	key, path := apiclient.NewKey(), []string{"erasures"}
	if r.DryRun {
		key, path = "", []string{"erasures", "plan"}
	}
	for {
		var v operate.ErasedData
		if err := d.Post(ctx, &v, key, body, path...); err != nil {
			return all, err
		}
		did := v.Letters + v.Delayed + v.Keys + v.Texts
		v.Letters, v.Delayed, v.Keys, v.Texts = v.Letters+all.Letters, v.Delayed+all.Delayed, v.Keys+all.Keys, v.Texts+all.Texts
		all = v.Report
		switch {
		case v.Complete:
			return all, nil
		case r.DryRun:
			return all, fmt.Errorf("the server could not look at all of it in time: it found %d letters so far",
				all.Letters)
		case did > 0:
		case all.LettersInHand+all.DelayedInHand+all.KeysInHand+len(all.CampaignsOpen) > 0:
			return all, erasure.ErrInHand
		default:
			return all, errors.New("the server did nothing more in the time of one request")
		}
	}
}

// heads returns the letters that f chooses without metadata and payloads, page by page.
func heads(ctx context.Context, d *desk, f letters.Filter) iter.Seq2[operate.LetterData, error] {
	return paged(ctx, f, d.Heads, func(h operate.LetterData) int64 { return h.Seq })
}

func paged[T any](ctx context.Context, f letters.Filter, list func(context.Context, letters.Filter) ([]T, error),
	seq func(T) int64) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		f.Limit = letters.DefaultLimit
		for {
			page, err := list(ctx, f)
			if err != nil {
				yield(none, err)
				return
			}
			if len(page) == 0 {
				return
			}
			for _, item := range page {
				if !yield(item, nil) {
					return
				}
			}
			last := f.After
			// a server that passes over the place would send it for ever
			if f.After = seq(page[len(page)-1]); f.After == last {
				yield(none, errors.New("the list does not go on: the server sends the same page again"))
				return
			}
		}
	}
}
