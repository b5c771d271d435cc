package command

import (
	"context"
	"errors"
	"iter"

	"github.com/watermill-spillway/spillway/internal/operate"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// each returns the letters that f chooses, page by page.
func each(ctx context.Context, store *letters.Store, f letters.Filter) iter.Seq2[letters.Letter, error] {
	return paged(ctx, f, store.List, func(l letters.Letter) int64 { return l.Seq })
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
