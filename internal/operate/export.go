package operate

import (
	"context"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

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
