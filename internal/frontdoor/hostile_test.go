package frontdoor_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/shop"
	"github.com/watermill-spillway/spillway/redrive"
)

type awkward struct{}

func (awkward) Error() string { panic("no text for you") }

// Promise P4: whatever a handler does, its message ends as a letter with a reason, and the message behind it goes on.
func TestHostileHandlers(t *testing.T) {
	for name, test := range map[string]struct {
		handle func(*message.Message) ([]*message.Message, error)
		reason string
	}{
		"text of 5 MiB":       {failWith(errors.New(strings.Repeat("é", 5<<19))), classify.ReasonUnknownMaxRetries},
		"text not UTF-8":      {failWith(errors.New("\xff\x00")), classify.ReasonUnknownMaxRetries},
		"Error panics":        {failWith(awkward{}), classify.ReasonUnknownMaxRetries},
		"panics with nil":     {panicWith(nil), classify.ReasonPanic},
		"panics with error":   {panicWith(errors.New("boom")), classify.ReasonPanic},
		"panics with a type":  {panicWith(struct{ a, b int }{1, 2}), classify.ReasonPanic},
		"panics with awkward": {panicWith(awkward{}), classify.ReasonPanic},
		"runtime.Goexit": {func(*message.Message) ([]*message.Message, error) {
			runtime.Goexit()
			return nil, nil
		}, classify.ReasonGoexit},
		"a nil output": {func(*message.Message) ([]*message.Message, error) { return []*message.Message{nil}, nil }, classify.ReasonPermanent},
		"empties the message": {func(msg *message.Message) ([]*message.Message, error) {
			msg.UUID, msg.Metadata, msg.Payload = "", nil, nil
			msg.SetContext(canceled())
			return nil, msg.Context().Err()
		}, classify.ReasonTransientMaxRetries},
		"acks by itself and fails": {func(msg *message.Message) ([]*message.Message, error) {
			msg.Ack()
			return nil, errors.New("after the ack")
		}, classify.ReasonUnknownMaxRetries},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, false)
			stop := b.Run(b.Channel().Attach, func(msg *message.Message) ([]*message.Message, error) {
				if msg.UUID == "good" {
					return nil, b.Apply(msg)
				}
				return test.handle(msg)
			})
			defer stop()
			b.Publish(message.NewMessage("bad", []byte("payload")))
			b.Publish(message.NewMessage("good", nil))
			b.Eventually("it is set aside and the good one is handled", func() bool { return len(b.Waiting()) == 1 && len(b.Effects()) == 1 })
			letter := b.Waiting()[0].Letter
			if letter.Failure.Reason != test.reason || letter.Original.UUID != "bad" || string(letter.Original.Payload) != "payload" {
				t.Errorf("set aside %q (%q) with reason %s: %.200s", letter.Original.UUID, letter.Original.Payload, letter.Failure.Reason, letter.Failure.Description)
			}
			n := len(letter.Failure.Description)
			testkit.Check(t, n <= 8<<10, "a description of %d bytes", n)
		})
	}
}

func failWith(err error) message.HandlerFunc {
	return func(*message.Message) ([]*message.Message, error) { return nil, err }
}

func panicWith(v any) message.HandlerFunc {
	return func(*message.Message) ([]*message.Message, error) { panic(v) }
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// Feature V8, promise P6: a forged origin sends no message anywhere. On a live message it is not believed: the
// letter goes back to the topic where it failed, even if the forged one is allowed. In a letter that was forged whole,
// the allow-list has the last word.
func TestForgedOriginGoesNowhere(t *testing.T) {
	b := newBench(t, false)
	elsewhere := testkit.Must(b.Source.Subscribe(t.Context(), "payroll"))
	var repaired atomic.Bool
	stop := b.Run(b.Channel().Attach, func(msg *message.Message) ([]*message.Message, error) {
		if !repaired.Load() {
			return nil, classify.Permanent(errors.New("no"))
		}
		return nil, b.Apply(msg)
	})
	defer stop()
	forged := message.Metadata{"x-original-topic": "payroll", "x-original-handler": "paymaster", "x-failure-class": "permanent"}
	live, letter := message.NewMessage("live", nil), message.NewMessage("letter", nil)
	live.Metadata, letter.Metadata = forged, forged
	b.Publish(live)
	b.Eventually("it is set aside", func() bool { return len(b.Waiting()) == 1 })
	testkit.NoError(t, b.Letters.Publish("orders.dlq", letter))
	repaired.Store(true)
	report, err := redrive.Drain(context.Background(), b.Letters, b.Source, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}})
	testkit.Check(t, err == nil && report.Redriven == 1 && report.Refused == 1, "%+v, %v", report, err)
	b.Eventually("it came back to where it failed", func() bool { return slices.Equal(b.Effects(), []string{"live"}) })
	select {
	case <-elsewhere:
		t.Error("something went where the forged origin says")
	default:
	}
}

// Promise P6, P7: a redriven message that its handler passes on, metadata and all, does not make its output look as if
// it came from the first topic: when the output fails further on, it goes back there and not to the first.
func TestPassedOnOriginIsNotBelieved(t *testing.T) {
	b := newBench(t, false)
	var repaired atomic.Bool
	ch := b.Channel()
	stop := b.Run(func(router *message.Router) {
		ch.Attach(router)
		router.AddConsumerHandler("print", "invoices", shop.StaysOpen(b.Source), func(msg *message.Message) error {
			if msg.Metadata["x-original-topic"] != "" || msg.Metadata["x-redrive-count"] != "" || msg.Metadata["tenant"] != "acme" {
				t.Errorf("the output's metadata are %v", msg.Metadata)
			}
			return classify.Permanent(errors.New("no paper"))
		})
	}, func(msg *message.Message) ([]*message.Message, error) {
		if !repaired.Load() {
			return nil, classify.Permanent(errors.New("no"))
		}
		return []*message.Message{msg}, b.Apply(msg)
	})
	defer stop()
	b.Outs.Forward = func(msg *message.Message) { _ = b.Source.Publish("invoices", msg) }
	order := message.NewMessage("order", nil)
	order.Metadata.Set("tenant", "acme")
	b.Publish(order)
	b.Eventually("it is set aside", func() bool { return len(b.Waiting()) == 1 })
	repaired.Store(true)
	if _, err := redrive.Drain(context.Background(), b.Letters, b.Source, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders", "invoices"}}}); err != nil {
		t.Fatal(err)
	}
	b.Eventually("its output is set aside", func() bool { return len(b.Waiting()) == 1 && b.Waiting()[0].DeadLetterTopic == "invoices.dlq" })
	origin := b.Waiting()[0].Letter.Origin
	testkit.Check(t, origin.Topic == "invoices" && origin.Handler == "print", "the output's origin is %+v", origin)
}
