package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const (
	causes   = 40
	rareEach = 10_000 // one letter of as many is of the rare handler
)

var (
	payload = []byte(`{"order":` + strings.Repeat("1", 200) + `}`)
	stack   = strings.Repeat("main.handle(0x1234)\n\t/srv/main.go:42\n", 10)
	began   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// letter is a dead letter of one of some causes.
func letter(id string, n int) *message.Message {
	msg := message.NewMessage(id, payload)
	msg.Metadata.Set("tenant", fmt.Sprint("tenant-", n%100))
	handler := fmt.Sprint("handler-", n%8)
	if n%rareEach == rareEach-1 {
		handler = "rare"
	}
	l := poison.Letter{
		Original: msg,
		Origin:   poison.Origin{Topic: fmt.Sprint("orders-", n%4), Handler: handler, MessageID: id},
		Failure: poison.Failure{
			Class: classify.ClassPermanent, Reason: "permanent_error", Type: "*shop.Error", Stack: stack, StackHash: fmt.Sprint("hash-", n%causes),
			Description: fmt.Sprintf("customer %d has no account in region %s", n, strings.Repeat("x", 1+n%5)), Attempts: 5,
			FirstFailedAt: began.Add(time.Duration(n) * time.Second), LastFailedAt: began.Add(time.Duration(n+1) * time.Second),
		},
	}
	return l.Encode()
}

// fill puts letters until so many are there, in batches.
func fill(ctx context.Context, store *letters.Store, rows int) error {
	const batch, writers = 500, 2
	errs := make(chan error, writers)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for from := w * batch; from < rows && ctx.Err() == nil; from += writers * batch {
				messages := make([]*message.Message, 0, batch)
				for n := from; n < min(from+batch, rows); n++ {
					messages = append(messages, letter(fmt.Sprint("id-", n), n))
				}
				if err := store.Publish("orders.dlq", messages...); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(errs)
	if err := <-errs; err != nil {
		return err
	}
	return ctx.Err()
}

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
		{"causes", func(ctx context.Context, _ int) error { _, err := store.Groups(ctx, letters.Filter{}); return err }, 0},
		{"causes of a handler", func(ctx context.Context, i int) error {
			_, err := store.Groups(ctx, letters.Filter{Handlers: []string{fmt.Sprint("handler-", i%8)}})
			return err
		}, 0},
		{"list", func(_ context.Context, i int) error { return heads(letters.Filter{After: after(i)}) }, 0},
		{"filtered list", func(_ context.Context, i int) error {
			return heads(letters.Filter{Handlers: []string{fmt.Sprint("handler-", i%8)}, After: after(i)})
		}, 0},
		{"filtered list, rare", func(context.Context, int) error { return heads(letters.Filter{Handlers: []string{"rare"}}) }, 0},
		{"filtered list, nothing", func(context.Context, int) error { return heads(letters.Filter{Handlers: []string{"none"}}) }, 0},
		{"list by id", func(_ context.Context, i int) error {
			return heads(letters.Filter{IDs: []string{fmt.Sprint("id-", after(i))}})
		}, 0},
		{"list by stack hash", func(_ context.Context, i int) error {
			return heads(letters.Filter{StackHash: fmt.Sprint("hash-", i%causes)})
		}, 0},
		{"count", func(_ context.Context, i int) error {
			return count(letters.Filter{Handlers: []string{fmt.Sprint("handler-", i%8)}})
		}, 0},
		{"search", func(_ context.Context, i int) error {
			return heads(letters.Filter{Description: "has no account in region xxx", After: after(i)})
		}, 0},
		{"search, no such text", func(ctx context.Context, _ int) error { return scan(ctx, letters.Filter{Description: "nowhere"}) }, 3},
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
