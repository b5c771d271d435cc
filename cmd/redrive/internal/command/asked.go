package command

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"strconv"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/internal/operate/apiclient"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func number[N int | int64](n N) string { return strconv.FormatInt(int64(n), 10) }

// Causes returns a page of causes, masked.
func (d *desk) Causes(ctx context.Context, f letters.Filter, skip int) ([]operate.CauseData, error) {
	q := operate.FilterValues(f)
	q.Set("limit", number(f.Limit))
	if skip > 0 {
		q.Set("after", number(skip))
	}
	return d.causes(ctx, q)
}

// CausesBegin returns the causes whose hash begins so.
func (d *desk) CausesBegin(ctx context.Context, begin string) ([]operate.CauseData, error) {
	return d.causes(ctx, url.Values{"begins": {begin}})
}

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

// Unmasked returns a letter with the exact bytes of its payload, which is on record then. On a database nothing else is
// masked either.
func (d *desk) Unmasked(ctx context.Context, reason string, seq int64) (v operate.WholeData, err error) {
	if d.bare != nil { // a person on a database need not say why
		reason = cmp.Or(reason, "not said")
	}
	exact, err := d.PostBytes(ctx, apiclient.NewKey(), operate.ReasonBody{Reason: reason}, "letters", number(seq), "payload")
	if err != nil {
		return v, err
	}
	if d.bare != nil {
		d.Client = d.bare
	}
	v, err = d.Letter(ctx, seq)
	v.Payload, v.PayloadB64, v.PayloadBytes = nil, nil, len(exact)
	v.Carry(exact)
	return v, err
}

// Audit returns entries of the record.
func (d *desk) Audit(ctx context.Context, r operate.Record) ([]operate.EventData, error) {
	f := &r.Filter
	q := url.Values{"by": f.By, "id": f.MessageIDs, "redrive-id": f.RedriveIDs}
	for _, kind := range f.Kinds {
		q.Add("kind", string(kind))
	}
	for name, at := range map[string]string{"since": operate.Stamp(f.Since), "until": operate.Stamp(f.Until)} {
		if at != "" {
			q.Set(name, at)
		}
	}
	onPage(q, f.NewestFirst, f.After, f.Limit)
	if r.Seq > 0 {
		q.Set("letter", number(r.Seq))
	}
	var page operate.EventsData
	err := d.Get(ctx, &page, q, "audit")
	return page.Events, err
}

// Health says in numbers whether something is wrong.
func (d *desk) Health(ctx context.Context) (v operate.HealthData, err error) {
	err = d.Get(ctx, &v, nil, "health")
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
