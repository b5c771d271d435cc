package remote

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func number[N int | int64](n N) string { return strconv.FormatInt(int64(n), 10) }

// Causes returns a page of causes, masked.
func (d *Desk) Causes(ctx context.Context, f letters.Filter, skip int) (all []letters.Group, err error) {
	q := operate.FilterValues(f)
	q.Set("limit", number(f.Limit))
	if skip > 0 {
		q.Set("after", number(skip))
	}
	return d.causes(ctx, q)
}

// CausesBegin returns the causes whose hash begins so.
func (d *Desk) CausesBegin(ctx context.Context, begin string) (all []letters.Group, err error) {
	return d.causes(ctx, url.Values{"begins": {begin}})
}

func (d *Desk) causes(ctx context.Context, q url.Values) (all []letters.Group, err error) {
	var page operate.CausesData
	err = d.get(ctx, &page, q, "causes")
	for _, c := range page.Causes {
		all = append(all, groupOf(c))
	}
	return all, err
}

// Heads returns letters, masked.
func (d *Desk) Heads(ctx context.Context, f letters.Filter) (all []letters.Head, err error) {
	q := operate.FilterValues(f)
	place(q, f.NewestFirst, f.After, f.Limit)
	var page operate.LettersData
	err = d.get(ctx, &page, q, "letters")
	for _, l := range page.Letters {
		all = append(all, headOf(l))
	}
	return all, err
}

// place says which page of a list.
func place(q url.Values, newest bool, after int64, limit int) {
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

// HeadOf returns a letter without its content.
func (d *Desk) HeadOf(ctx context.Context, seq int64) (letters.Head, error) {
	var v operate.WholeData
	err := d.getItem(ctx, &v, nil, "letters", number(seq))
	return headOf(v.LetterData), err
}

// Whole returns a letter, masked, with its record. If the payload is asked for unmasked, the server records it.
func (d *Desk) Whole(ctx context.Context, who operate.Person, seq int64, unmasked bool) (l operate.Letter,
	events []letters.Event, err error) {
	var exact []byte
	if unmasked {
		if exact, err = d.payload(ctx, seq, who.Reason); err != nil {
			return l, nil, err
		}
	}
	var v operate.WholeData
	if err := d.getItem(ctx, &v, nil, "letters", number(seq)); err != nil {
		return l, nil, err
	}
	if l = letterOf(v); unmasked {
		l.Original.Payload, l.PayloadBytes = exact, len(exact)
	}
	for _, e := range v.Life {
		events = append(events, eventOf(e))
	}
	return l, events, nil
}

// payload returns the exact bytes of a payload, on record.
func (d *Desk) payload(ctx context.Context, seq int64, reason string) ([]byte, error) {
	body, err := jsonOf(operate.ReasonBody{Reason: reason})
	if err != nil {
		return nil, err
	}
	kind, exact, err := d.ask(ctx, asking{method: http.MethodPost, path: []string{"letters", number(seq), "payload"},
		body: body, key: newKey(), item: true})
	if err == nil && kind != "application/octet-stream" {
		err = d.noAPI(kind)
	}
	return exact, err
}

// Audit returns entries of the record.
func (d *Desk) Audit(ctx context.Context, _ operate.Person, r operate.Record) (all []letters.Event, err error) {
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
	place(q, f.NewestFirst, f.After, f.Limit)
	if r.Seq > 0 {
		q.Set("letter", number(r.Seq))
	}
	var page operate.EventsData
	err = d.get(ctx, &page, q, "audit")
	for _, e := range page.Events {
		all = append(all, eventOf(e))
	}
	return all, err
}

// Health says in numbers whether something is wrong.
func (d *Desk) Health(ctx context.Context) (v operate.HealthData, err error) {
	err = d.get(ctx, &v, nil, "health")
	return v, err
}

// errNotCounted is the error of letters that cannot be counted in time.
var errNotCounted = errors.New("the server could not count these letters in time: choose fewer")

// Freeze selects the letters that a filter chooses now.
func (d *Desk) Freeze(ctx context.Context, f letters.Filter) (operate.Selection, error) {
	var v operate.CountData
	err := d.get(ctx, &v, operate.FilterValues(f), "letters", "count")
	if err == nil && (!v.Counted || v.Count == nil) {
		err = lasting{errNotCounted}
	}
	if err != nil {
		return operate.Selection{}, err
	}
	f.MaxSeq = v.MaxSeq
	return operate.Selection{Filter: f, Number: *v.Count}, nil
}
