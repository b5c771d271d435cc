package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/metrics"
	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain/attempts"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/observe/prom"
	"github.com/watermill-spillway/spillway/poison"
)

// nowhere takes everything at once, so that the figures are of the middlewares alone.
type nowhere struct{ last *message.Message }

func (n *nowhere) Publish(_ string, messages ...*message.Message) error {
	n.last = messages[0]
	return nil
}

func (*nowhere) Close() error { return nil }

// newMessage is the message of the figures: 5 metadata keys and 1 KiB, in a context that can be cancelled.
func newMessage() (*message.Message, context.CancelFunc) {
	msg := message.NewMessage(watermill.NewUUID(), make([]byte, 1024))
	for _, key := range []string{"tenant", "event-type", "trace-id", "content-type", "schema"} {
		msg.Metadata.Set(key, "the value of "+key)
	}
	ctx, cancel := context.WithCancel(context.Background())
	msg.SetContext(ctx)
	return msg, cancel
}

func succeed(*message.Message) ([]*message.Message, error) { return nil, nil }

func happySpillway(b *testing.B) { happy(b, spillway.Config{}) }

// happyGuarded has the breaker, which is closed, and a retry budget.
func happyGuarded(b *testing.B) {
	happy(b, spillway.Config{Breaker: &breaker.Config{}, Retry: middleware.RetryConfig{Budget: &middleware.Budget{}}})
}

// happyObserved has metrics beside.
func happyObserved(b *testing.B) {
	metrics, err := prom.New(prom.Config{Registerer: prometheus.NewRegistry()})
	if err != nil {
		b.Fatal(err)
	}
	happy(b, spillway.Config{Observers: []spillway.Observer{metrics}})
}

// bareWatermillObserved are Watermill's metrics around a bare handler.
func bareWatermillObserved(b *testing.B) {
	run(b, metrics.NewPrometheusMetricsBuilder(prometheus.NewRegistry(), "",
		"").NewRouterMiddleware().Middleware(succeed))
}

func bare(b *testing.B) { run(b, succeed) }

func happy(b *testing.B, config spillway.Config) {
	config.Publisher = &nowhere{}
	channel, err := spillway.New(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	run(b, channel.Middleware(succeed))
}

func happyWatermill(b *testing.B) {
	queue, err := wm.PoisonQueue(&nowhere{}, "poison")
	if err != nil {
		b.Fatal(err)
	}
	retry := wm.Retry{MaxRetries: 4, InitialInterval: 100 * time.Millisecond, MaxInterval: 10 * time.Second,
		Multiplier: 2}
	run(b, queue(retry.Middleware(wm.Recoverer(succeed))))
}

func run(b *testing.B, h message.HandlerFunc) {
	msg, cancel := newMessage()
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := h(msg); err != nil {
			b.Fatal(err)
		}
	}
}

// panicked is a failure with a real stack.
func panicked() (failure *classify.Failure) {
	defer func() {
		failure = &classify.Failure{}
		attempts.Add(failure, safecall.Panicked(recover()),
			classify.Verdict{Class: classify.ClassPermanent, Reason: classify.ReasonPanic}, time.Now())
	}()
	panic(errors.New("index out of range"))
}

// placeLetter is all that a dead letter costs but its publish: cause, stack and its hash, texts, metadata.
func placeLetter(b *testing.B) {
	queue, err := poison.NewQueue(&nowhere{}, poison.QueueConfig{})
	if err != nil {
		b.Fatal(err)
	}
	msg, cancel := newMessage()
	defer cancel()
	failure := panicked()
	b.ReportAllocs()
	for b.Loop() {
		if err := queue.Place(msg, failure); err != nil {
			b.Fatal(err)
		}
	}
}

func encodeLetter(b *testing.B) {
	letter, err := poison.Decode(placed())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = letter.Encode()
	}
}

// placed is the letter that placeLetter publishes.
func placed() *message.Message {
	to := &nowhere{}
	queue, err := poison.NewQueue(to, poison.QueueConfig{})
	if err != nil {
		panic(err)
	}
	msg, cancel := newMessage()
	defer cancel()
	if err := queue.Place(msg, panicked()); err != nil {
		panic(fmt.Errorf("nowhere refused: %w", err))
	}
	return to.last
}

func bytesAdded() int {
	original, cancel := newMessage()
	defer cancel()
	added := 0
	for key, value := range placed().Metadata {
		if _, was := original.Metadata[key]; !was {
			added += len(key) + len(value)
		}
	}
	return added
}
