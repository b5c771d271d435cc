package wmsql_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// What a handler writes after its own ack commits with the ack, and is undone when it returns an error: a letter.
func TestBatchOwnAck(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		ids := []string{"a", "nil", "error", "c"}
		b.publish(ids...)
		b.run(b.subscriber(oneBatch), func(msg *message.Message) ([]*message.Message, error) {
			if msg.UUID == "nil" || msg.UUID == "error" {
				msg.Ack()
				time.Sleep(20 * time.Millisecond)
			}
			outs, err := b.whole(msg)
			if msg.UUID == "error" {
				err = classify.Permanent(errors.New("failed"))
			}
			return outs, err
		})
		b.until("the letter is there", func() bool { return len(b.letters()) == 1 })
		b.until("the outputs are there", func() bool { return len(b.outputs()) == 3 })
		b.account(ids, "error")
	})
}

// One that is tried again at once after it acked and failed is in a transaction of its own by then, whole as well.
func TestBatchOwnAckRetried(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		var seen deliveries
		ids := batchOf("m", 40)
		b.publish(ids...)
		b.run(b.subscriber(oneBatch), func(msg *message.Message) ([]*message.Message, error) {
			if seen.add(msg.UUID) == 1 {
				msg.Ack()
				return nil, errors.New("failed")
			}
			if err := b.write(msg, "one"); err != nil {
				return nil, err
			}
			time.Sleep(2 * time.Millisecond)
			return []*message.Message{message.NewMessage("", []byte(msg.UUID))}, b.write(msg, "two")
		}, func(c *spillway.Config) {
			c.Retry.Backoff = middleware.Backoff{Initial: time.Nanosecond, Max: time.Nanosecond}
		})
		b.until("all are tried again", func() bool { return len(b.outputs()) == len(ids) })
		b.account(ids)
	})
}

// One that nacks it itself and goes on leaves nothing, however the batch before it commits meanwhile.
func TestBatchOwnNack(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		var seen deliveries
		var ids []string
		for i := range 10 {
			ids = append(ids, fmt.Sprintf("good-%d", i), fmt.Sprintf("%s-%d", []string{"nil", "error"}[i%2], i))
		}
		ids = append(ids, "good", "hangs")
		b.publish(ids...)
		graceful := func(c *wmsql.SubscriberConfig) { *wmsql.SettleGrace(c) = 200 * time.Millisecond }
		b.run(b.subscriber(oneBatch, graceful), func(msg *message.Message) ([]*message.Message, error) {
			if n := seen.add(msg.UUID); strings.HasPrefix(msg.UUID, "good") || n > 2 {
				return b.whole(msg)
			}
			err := b.write(msg, "half")
			msg.Nack()
			for begun := time.Now(); err == nil && time.Since(begun) < 15*time.Millisecond; {
				err = b.write(msg, "half")
			}
			if msg.UUID == "hangs" {
				time.Sleep(400 * time.Millisecond)
			}
			if strings.HasPrefix(msg.UUID, "error") {
				err = errors.New("failed")
			}
			return []*message.Message{message.NewMessage("", []byte("half"))}, err
		})
		b.account(ids)
	})
}

// What a goroutine of the handler's says when the handler has returned is refused, or stands by itself.
func TestBatchLeftBehind(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		ids, beside := []string{"a", "b"}, b.beside()
		returned, late := make(chan struct{}), make(chan error, 2)
		b.publish(ids...)
		b.run(b.subscriber(oneBatch), func(msg *message.Message) ([]*message.Message, error) {
			if msg.UUID == "a" {
				tx, ctx := txOf(msg.Context()), msg.Context()
				go func() {
					<-returned
					late <- insert(tx, "a", "late")
					late <- b.pub.Publish(beside.outs, message.NewMessageWithContext(ctx, "", []byte("late")))
				}()
				return b.whole(msg)
			}
			close(returned)
			testkit.Is(t, <-late, sql.ErrTxDone) // the write
			testkit.Is(t, <-late, nil)           // the output
			return b.whole(msg)
		})
		b.account(ids)
		testkit.Equal(t, "late outputs", beside.outputs()["late"], 1)
	})
}

// A handler that commits in SQL and fails has its message set aside, even where no connection is free.
func TestBatchOwnCommitWithoutConnections(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		own := b.over(b.kind.Open(t, b.address))
		own.db.SetMaxOpenConns(1)
		b.publish("a")
		own.run(own.subscriber(func(c *wmsql.SubscriberConfig) {
			*wmsql.MaxDeliveries(c), *wmsql.SettleGrace(c) = 2, 100*time.Millisecond
		}), func(msg *message.Message) ([]*message.Message, error) {
			err := own.write(msg, "half")
			_, ended := txOf(msg.Context()).Exec(`COMMIT`)
			return nil, errors.Join(err, ended, errors.New("failed"))
		}, once)
		b.drained()
		testkit.Equal(t, "letters", len(b.letters()["a"]), 1)
	})
}
