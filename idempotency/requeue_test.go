package idempotency_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/settings"
)

// held is a store whose keys are all leased to another process.
type held struct{ idempotency.Store }

func (held) Consumer(handler string) string { return handler }
func (held) Claim(context.Context, idempotency.Entry) (idempotency.Claim, error) {
	return nil, idempotency.ErrHeld
}
func (held) Lease(context.Context, idempotency.Entry, time.Duration) (idempotency.Lease, error) {
	return nil, idempotency.ErrHeld
}

// Feature I3, promises P3, P4: who is put back is held for at least half a second, and at most for a second,
// lest a subscriber that delivers at once spins; and no longer than its context lasts.
func TestRequeueAfter(t *testing.T) {
	for _, lease := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			r := newReceiver(t, held{}, idempotency.ReceiverConfig{Lease: lease})
			h := r.Middleware(func(*message.Message) ([]*message.Message, error) { t.Error("called"); return nil, nil })
			least, most := time.Hour, time.Duration(0)
			for range 50 {
				began := time.Now()
				_, err := h(newMessage("m1"))
				testkit.Require(t, givenBack(err), "%v", err)
				took := time.Since(began)
				least, most = min(least, took), max(most, took)
			}
			if least < 500*time.Millisecond || most > time.Second+time.Nanosecond || most-least < 80*time.Millisecond {
				t.Errorf("held for %s to %s", least, most)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			msg := newMessage("m1")
			msg.SetContext(ctx)
			began := time.Now()
			if _, err := h(msg); !givenBack(err) || time.Since(began) != 100*time.Millisecond {
				t.Errorf("%v after %s", err, time.Since(began))
			}
		})
	}
}

// Bad input: two handlers with one consumer name are reported, once.
func TestSharedConsumer(t *testing.T) {
	db := openWithEffects(t)
	logger := watermill.NewCaptureLogger()
	for name, consumer := range map[string]string{"shared": "billing", "own": ""} {
		r, err := idempotency.NewReceiver(storeOn(db), idempotency.ReceiverConfig{Consumer: consumer, Shared: settings.Shared{Logger: logger}})
		testkit.NoError(t, err)
		router := testkit.Must(message.NewRouter(message.RouterConfig{}, nil))
		router.AddMiddleware(r.Middleware)
		done := make(chan bool, 4)
		for _, handler := range []string{"first", "second"} {
			router.AddConsumerHandler(handler, handler, once{name + handler}, func(*message.Message) error { done <- true; return nil })
		}
		stopped := make(chan error, 1)
		go func() { stopped <- router.Run(t.Context()) }()
		for range 4 {
			<-done
		}
		testkit.NoError(t, router.Close())
		testkit.NoError(t, <-stopped)
	}
	if told := logger.Captured()[watermill.ErrorLogLevel]; len(told) != 1 || told[0].Fields["consumer"] != "billing" || told[0].Fields["first"] == told[0].Fields["second"] {
		t.Errorf("%+v", told)
	}
}

// once is a subscriber of two messages.
type once struct{ id string }

func (o once) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	ch := make(chan *message.Message)
	go func() {
		defer close(ch)
		for _, n := range []string{"1", "2"} {
			msg := newMessage(o.id + n)
			msg.SetContext(ctx)
			ch <- msg
			<-msg.Acked()
		}
		<-ctx.Done()
	}()
	return ch, nil
}

func (once) Close() error { return nil }
