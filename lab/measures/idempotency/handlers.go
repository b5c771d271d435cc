package main

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/idempotency/pgxstore"
)

// own is the handler with a transaction of its own.
func (d *database) own(msg *message.Message) ([]*message.Message, error) {
	tx, err := d.BeginTx(msg.Context(), nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(msg.Context(), d.Insert(), msg.UUID); err != nil {
		return nil, err
	}
	return nil, tx.Commit()
}

// receiver is the same handler behind a receiver.
func (d *database) receiver() (message.HandlerFunc, error) {
	r, err := idempotency.NewReceiver(d.keys, idempotency.ReceiverConfig{Consumer: "bench"})
	if err != nil {
		return nil, err
	}
	if d.name == "pgxstore" {
		return r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			_, err := pgxstore.Tx(msg.Context()).Exec(msg.Context(), d.Insert(), msg.UUID)
			return nil, err
		}), nil
	}
	return r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		_, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(), d.Insert(), msg.UUID)
		return nil, err
	}), nil
}

// measure is how many messages a second go through a handler.
func measure(ctx context.Context, consumers int, round time.Duration, handle message.HandlerFunc) (float64, error) {
	payload := make([]byte, 1024)
	began := time.Now()
	handled, failed := make([]int, consumers), make([]error, consumers)
	var all sync.WaitGroup
	for i := range consumers {
		all.Go(func() {
			for more := true; more; more = failed[i] == nil && time.Since(began) < round {
				msg := message.NewMessageWithContext(ctx, watermill.NewUUID(), payload)
				_, failed[i] = handle(msg)
				handled[i]++
			}
		})
	}
	all.Wait()
	took := time.Since(began).Seconds()
	sum := 0
	for i := range consumers {
		if failed[i] != nil {
			return 0, failed[i]
		}
		sum += handled[i]
	}
	return float64(sum) / took, nil
}
