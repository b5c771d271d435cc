package main

import (
	"context"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/lab/internal/backlog"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// question is what an operator asks.
type question struct {
	what string
	ask  func(ctx context.Context, i int) error
	most int // times that it is asked, if it reads every letter
}

// cancelAfter is when a question that reads every letter is cancelled.
const cancelAfter = 20 * time.Millisecond

func questions(store *letters.Store, rows int) []question {
	after := func(i int) int64 { return int64(i * 7919 % (rows/2 + 1)) }
	heads := func(f letters.Filter) error { _, err := store.Heads(context.Background(), f); return err }
	scan := func(ctx context.Context, f letters.Filter) error { _, err := store.Heads(ctx, f); return err }
	count := func(f letters.Filter) error { _, err := store.Count(context.Background(), f); return err }
	return []question{
		{"causes", func(ctx context.Context, _ int) error { _, err := store.Groups(ctx, letters.Filter{}); return err },
			0},
		{"causes of a handler", func(ctx context.Context, i int) error {
			_, err := store.Groups(ctx, letters.Filter{Handlers: []string{fmt.Sprint("handler-", i%8)}})
			return err
		}, 0},
		{"list", func(_ context.Context, i int) error { return heads(letters.Filter{After: after(i)}) }, 0},
		{"filtered list", func(_ context.Context, i int) error {
			return heads(letters.Filter{Handlers: []string{fmt.Sprint("handler-", i%8)}, After: after(i)})
		}, 0},
		{"filtered list, rare", func(context.Context, int) error {
			return heads(letters.Filter{Handlers: []string{"rare"}})
		}, 0},
		{"filtered list, nothing", func(context.Context, int) error {
			return heads(letters.Filter{Handlers: []string{"none"}})
		}, 0},
		{"list by id", func(_ context.Context, i int) error {
			return heads(letters.Filter{IDs: []string{fmt.Sprint("id-", after(i))}})
		}, 0},
		{"list by stack hash", func(_ context.Context, i int) error {
			return heads(letters.Filter{StackHash: fmt.Sprint("hash-", i%backlog.Causes)})
		}, 0},
		{"count", func(_ context.Context, i int) error {
			return count(letters.Filter{Handlers: []string{fmt.Sprint("handler-", i%8)}})
		}, 0},
		{"search", func(_ context.Context, i int) error {
			return heads(letters.Filter{Description: "has no account in region xxx", After: after(i)})
		}, 0},
		{"search, no such text", func(ctx context.Context, _ int) error {
			return scan(ctx, letters.Filter{Description: "nowhere"})
		}, 3},
		{"search, cancelled after 20 ms", func(ctx context.Context, _ int) error {
			ctx, cancel := context.WithTimeout(ctx, cancelAfter)
			defer cancel()
			if err := scan(ctx, letters.Filter{Payload: "nowhere"}); ctx.Err() == nil {
				return err
			}
			return nil
		}, 10},
		{"search metadata, no such value", func(ctx context.Context, _ int) error {
			return scan(ctx, letters.Filter{Metadata: map[string]string{"tenant": "nowhere"}})
		}, 1},
	}
}
