package redrive_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Promise P3: a drain that is cancelled says what it did, marks what it published and gives the rest back.
func TestDrain_cancelled(t *testing.T) { onEach(t, testDrain_cancelled) }

func testDrain_cancelled(t *testing.T, on database) {
	store := on.NewStore(t)
	publish(t, store, "orders.dlq", several(20)...)
	ctx, cancel := context.WithCancel(t.Context())
	out := &outbox{Before: func(_ string, msg *message.Message) error {
		if msg.UUID == "id-4" {
			cancel()
		}
		return nil
	}}
	report, err := redrive.Drain(ctx, store, out, orders)
	if !errors.Is(err, context.Canceled) || report.Redriven != 5 || report.Taken != 5 || report.Failed != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	wantCount(t, store, status(letters.StatusRedriven), 5)
	if taken, err := fixture.Take(t.Context(), store, letters.Filter{}, time.Hour, 100); err != nil || len(taken) != 15 {
		t.Fatalf("%d letters are free, %v", len(taken), err)
	}
	if report, err := redrive.Drain(ctx, store, out, orders); !errors.Is(err, context.Canceled) || report.Taken != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
}

// Feature V2, promise P3: waiting for the rate ends with the context.
func TestDrain_cancelledWhileWaiting(t *testing.T) { onEach(t, testDrain_cancelledWhileWaiting) }

func testDrain_cancelledWhileWaiting(t *testing.T, on database) {
	store, out := on.NewStore(t), &outbox{}
	publish(t, store, "orders.dlq", several(5)...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := publisherFunc(func(topic string, messages ...*message.Message) error {
		time.AfterFunc(50*time.Millisecond, cancel) // the others have been taken, and wait for their turn
		return out.Publish(topic, messages...)
	})
	report, err := redrive.Drain(ctx, store, first, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}, Rate: 0.001, Concurrency: 3}})
	if !errors.Is(err, context.Canceled) || report.Redriven != 1 || len(out.All()) != 1 {
		t.Fatalf("%+v, %v", report, err)
	}
	if taken, err := fixture.Take(t.Context(), store, letters.Filter{}, time.Hour, 100); err != nil || len(taken) != 4 {
		t.Fatalf("%d letters are free, %v", len(taken), err)
	}
}

// Promises P1, P3: when the context of a drain ends, letters that were not begun are free at once, and do not wait for
// a publisher that is stuck. The letter in hand stays leased until the publisher returns.
func TestDrain_endsWhileAPublisherIsStuck(t *testing.T) {
	onEach(t, testDrain_endsWhileAPublisherIsStuck)
}

func testDrain_endsWhileAPublisherIsStuck(t *testing.T, on database) {
	store, out := on.NewStore(t), &outbox{}
	publish(t, store, "orders.dlq", several(5)...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	free := 0
	stuck := publisherFunc(func(topic string, messages ...*message.Message) error {
		cancel()
		eventually(t, "the four others are free", func() bool {
			taken, err := fixture.Take(t.Context(), store, letters.Filter{}, time.Hour, 10)
			if err != nil {
				t.Error(err)
			}
			free += len(taken)
			return free == 4
		})
		return out.Publish(topic, messages...)
	})
	report, err := redrive.Drain(ctx, store, stuck, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}})
	if err == nil || report.Redriven != 1 || report.Taken != 1 {
		t.Errorf("%+v, %v", report, err)
	}
}
