package poison

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/placing"
	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/internal/testkit"
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
		if _ = queue.Place(msg, boom); slices.Contains(e.all, "placing id") {
			t.Errorf("%s: Place without a chain: %v", name, e.all)
		}
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
