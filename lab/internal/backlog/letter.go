package backlog

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
	// Causes is how many causes the letters have. The stack hash of cause n is hash-n.
	Causes   = 40
	rareEach = 10_000 // one letter of as many is of the handler rare
)

var (
	payload = []byte(`{"order":` + strings.Repeat("1", 200) + `}`)
	stack   = strings.Repeat("main.handle(0x1234)\n\t/srv/main.go:42\n", 10)
	began   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Letter is a dead letter of one of the Causes, of a topic from orders-0 to orders-3 and a handler from handler-0 to
// handler-7.
func Letter(id string, n int) *message.Message {
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
			Class: classify.ClassPermanent, Reason: "permanent_error", Type: "*shop.Error", Stack: stack,
			StackHash:     fmt.Sprint("hash-", n%Causes),
			Description:   fmt.Sprintf("customer %d has no account in region %s", n, strings.Repeat("x", 1+n%5)),
			Attempts:      5,
			FirstFailedAt: began.Add(time.Duration(n) * time.Second),
			LastFailedAt:  began.Add(time.Duration(n+1) * time.Second),
		},
	}
	return l.Encode()
}

// Fill puts letters until so many are there, in batches.
func Fill(ctx context.Context, store *letters.Store, rows int) error {
	const batch, writers = 500, 2
	errs := make(chan error, writers)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for from := w * batch; from < rows && ctx.Err() == nil; from += writers * batch {
				messages := make([]*message.Message, 0, batch)
				for n := from; n < min(from+batch, rows); n++ {
					messages = append(messages, Letter(fmt.Sprint("id-", n), n))
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
