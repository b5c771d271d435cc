package command

import (
	"context"
	"iter"
	"time"

	"github.com/watermill-spillway/spillway/redrive/letters"
)

// each returns the letters that f chooses, page by page.
func each(ctx context.Context, store *letters.Store, f letters.Filter) iter.Seq2[letters.Letter, error] {
	return func(yield func(letters.Letter, error) bool) {
		f.Limit = letters.DefaultLimit
		for {
			page, err := store.List(ctx, f)
			if err != nil {
				yield(letters.Letter{}, err)
				return
			}
			if len(page) == 0 {
				return
			}
			for _, l := range page {
				if !yield(l, nil) {
					return
				}
			}
			f.After = page[len(page)-1].Seq
		}
	}
}

// lastFailed is when the letter failed, or else when it arrived.
func lastFailed(l letters.Letter) time.Time {
	if l.Failure.LastFailedAt.IsZero() {
		return l.StoredAt
	}
	return l.Failure.LastFailedAt
}
