package poison

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/placing"
	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/settings"
)

// events are what happened, in order. It is a placing.Delivery too.
type events struct {
	all    []string
	during func()
}

func (e *events) add(event string) { e.all = append(e.all, event) }

func (e *events) Placing(_ context.Context, msg *message.Message) {
	e.add("placing " + msg.UUID)
	if e.during != nil {
		e.during()
	}
}

// Promise P1: the subscriber learns that a message is being placed after its handler and before the publisher, and
// learns nothing of a message of which no letter is made.
func TestPlacingBegins(t *testing.T) {
	boom := errors.New("boom")
	for name, row := range map[string]struct {
		err  error
		with func(context.Context, *message.Message) context.Context
		want []string
	}{
		"failure":   {err: boom, want: []string{"handled", "placing id", "published"}},
		"panic":     {err: safecall.Panicked("boom"), want: []string{"handled", "placing id", "published"}},
		"success":   {want: []string{"handled"}},
		"discard":   {err: classify.Discard(boom), want: []string{"handled"}},
		"nacked":    {err: boom, with: func(ctx context.Context, msg *message.Message) context.Context { msg.Nack(); return ctx }, want: []string{"handled"}},
		"cancelled": {err: boom, with: func(ctx context.Context, _ *message.Message) context.Context { return cancelled(ctx) }, want: []string{"handled"}},
		"claimed": {err: boom, with: func(ctx context.Context, _ *message.Message) context.Context {
			return chain.WithClaim(ctx, ofAll{})
		}, want: []string{"handled"}},
	} {
		e := &events{}
		queue := newQueue(t, &sink{refuse: func(int, string, *message.Message) error { e.add("published"); return nil }}, QueueConfig{})
		msg := message.NewMessage("id", nil)
		ctx := placing.With(context.Background(), e)
		if row.with != nil {
			ctx = row.with(ctx, msg)
		}
		msg.SetContext(ctx)
		_, _ = queue.Middleware(func(*message.Message) ([]*message.Message, error) { e.add("handled"); return nil, row.err })(msg)
		testkit.Check(t, slices.Equal(e.all, row.want), "%s: %v, want %v", name, e.all, row.want)
		e.all = nil
		_ = queue.Place(msg, boom)
		testkit.Check(t, !slices.Contains(e.all, "placing id"), "%s: Place without a chain: %v", name, e.all)
	}
}

// Promise P3: a message that goes away while it waits for its turn is given back, and nothing is published.
func TestPlacingWaitsForItsTurn(t *testing.T) {
	ctx, end := context.WithCancel(context.Background())
	dead, e := &sink{}, &events{during: end}
	queue := newQueue(t, dead, QueueConfig{})
	msg := message.NewMessageWithContext(placing.With(ctx, e), "id", nil)
	_, err := queue.Middleware(failing(errors.New("boom")))(msg)
	testkit.Check(t, chain.IsAborted(err) && dead.tries == 0, "%v, and %d were published", err, dead.tries)
}

func cancelled(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// ofAll is a claim of whatever message.
type ofAll struct{ chain.Claim }

func (ofAll) Holds(*message.Message) bool { return true }

// Promise P3, decision 2: nacked by its handler, a message is on its way back and is not placed too; acked by its
// handler, which ends its context, it has not gone away.
func TestQueueHandlerSettlesItself(t *testing.T) {
	dead := &sink{}
	nacked := false
	r := start(t, "orders", dead, QueueConfig{}, func(msg *message.Message) ([]*message.Message, error) {
		switch {
		case msg.UUID == "nack" && !nacked:
			nacked = true
			msg.Nack()
			return nil, errors.New("nacked")
		case msg.UUID == "ack":
			msg.Ack()
			<-msg.Context().Done()
			return nil, errors.New("failed after the ack")
		}
		return []*message.Message{message.NewMessage(msg.UUID, nil)}, nil
	})
	r.publish(message.NewMessage("nack", nil))
	r.publish(message.NewMessage("ack", nil))
	eventually(t, "both are settled", func() bool { return len(dead.in("orders.dlq")) == 1 && len(r.outs.in("out")) == 1 })
	testkit.Equal(t, "placed", dead.in("orders.dlq")[0].UUID, "ack")
}

func masking(t *testing.T, mask func(string) string) *privacy.Redactor {
	return testkit.Must(privacy.New(privacy.Rules{Mask: mask}))
}

// Feature D14: masks see every text and every value before any sink; where one panics the value is withheld.
func TestQueueMasks(t *testing.T) {
	hide := func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }
	for _, mask := range []func(string) string{hide, func(string) string { panic("hunter2") }} {
		dead := &sink{}
		msg := message.NewMessage("id", []byte("hunter2 in the payload stays"))
		msg.Metadata["secret"] = "hunter2"
		queue := newQueue(t, dead, QueueConfig{
			Shared: settings.Shared{Privacy: masking(t, mask)}, MaskMetadata: func(_, value string) string { return mask(value) },
		})
		testkit.NoError(t, queue.Place(msg, panicking(errors.New("password=hunter2"))))
		letter := dead.in("unknown.dlq")[0]
		for key, value := range letter.Metadata {
			testkit.Check(t, !strings.Contains(value, "hunter2"), "%s still tells: %q", key, value)
		}
		testkit.Check(t, string(letter.Payload) == "hunter2 in the payload stays", "payload %q", letter.Payload)
	}
}

// Feature D4: after the deadline of the message's context every sink still has its one try.
func TestPlaceAfterDeadlineTriesFallbacks(t *testing.T) {
	last := &sink{}
	queue := testkit.Must(
		NewQueue(&sink{refuse: func(int, string, *message.Message) error { return errors.New("down") }}, QueueConfig{
			Fallbacks: []Sink{{Publisher: last}},
		}))
	ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	testkit.NoError(t, queue.Place(message.NewMessageWithContext(ctx, "id", nil), errors.New("too slow")))
	testkit.Check(t, last.topics() == "unknown.dlq:1", "placed in %q", last.topics())
}
