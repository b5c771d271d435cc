package operate

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Record chooses entries of the record: those of a filter, or the whole history of one letter's message.
type Record struct {
	Filter letters.EventFilter
	Seq    int64
}

// RecordFields are the fields of Record.
var RecordFields = []string{"by", "kind", "since", "until", "id", "redrive-id", "letter", "after"}

// ParseRecord reads which entries a person asks for, from values by the names of their fields.
func ParseRecord(q url.Values, now time.Time) (r Record, err error) {
	f := &r.Filter
	f.By, f.MessageIDs, f.RedriveIDs = Filled(q["by"]), Filled(q["id"]), Filled(q["redrive-id"])
	for _, kind := range Filled(q["kind"]) {
		if !slices.Contains(inside.EventKinds, kind) {
			return r, wrongValue("kind", kind, "use one of "+strings.Join(inside.EventKinds, ", "))
		}
		f.Kinds = append(f.Kinds, letters.EventKind(kind))
	}
	if f.Since, err = Moment("since", q.Get("since"), now); err != nil {
		return r, err
	}
	if f.Until, err = Moment("until", q.Get("until"), now); err != nil {
		return r, err
	}
	for name, number := range map[string]*int64{"letter": &r.Seq, "after": &f.After} {
		typed := q.Get(name)
		if typed == "" {
			continue
		}
		if *number, err = strconv.ParseInt(typed, 10, 64); err != nil || *number < 1 {
			return r, wrongValue(name, typed, "use a number from 1 on")
		}
	}
	if n := len(f.By) + len(f.MessageIDs) + len(f.RedriveIDs) + len(f.Kinds); n > letters.MaxListed {
		return r, wrong("", "The filter has %d values. At most %d are possible.", n, letters.MaxListed)
	}
	return r, nil
}

// Audit returns the entries of the record that r chooses, as a person may see them.
func (d *Desk) Audit(ctx context.Context, who Person, r Record) (events []letters.Event, err error) {
	if r.Seq > 0 {
		events, err = d.Store.History(ctx, r.Seq)
	} else {
		events, err = d.Store.Audit(ctx, r.Filter)
	}
	return d.Events(who, events), err
}

// Events are entries of the record as a person may see them: masked, and without details, which have values of
// messages, for a person who may not look.
func (d *Desk) Events(who Person, events []letters.Event) []letters.Event {
	shown := slices.Clone(events)
	for i := range shown {
		e := &shown[i]
		e.MessageID, e.Reason = d.Masks.Text(e.MessageID), d.Masks.Text(e.Reason)
		if e.Detail = maskedDetail(d.Masks, e.Detail); who.Right < Look {
			e.Detail = ""
		}
	}
	return shown
}

// MaxExported is how many entries of the record an export has at most: the newest. Since and Until choose others.
const MaxExported = 200_000

// Export reads the entries of the record that r chooses, page by page: it keeps one page in memory. The first page is
// read before it returns, so that an error of it comes before anything is sent. The returned function passes on all
// entries.
func (d *Desk) Export(ctx context.Context, who Person, r Record) (func(row func(EventData) error) error, error) {
	r.Filter.After, r.Filter.Limit = 0, letters.MaxLimit
	first, err := d.Audit(ctx, who, r)
	return func(row func(EventData) error) error {
		for events, sent := first, 0; len(events) > 0; {
			for _, e := range events {
				if err := row(DataOfEvent(e)); err != nil {
					return err
				}
			}
			if sent += len(events); r.Seq > 0 || len(events) < r.Filter.Limit || sent >= MaxExported {
				break
			}
			r.Filter.After = events[len(events)-1].Number
			if events, err = d.Audit(ctx, who, r); err != nil {
				return err
			}
		}
		return nil
	}, err
}
