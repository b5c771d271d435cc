package frontdoor_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/shop"
)

// The order of the parts is the channel's business: attached twice, or to the router and the handler, or under other
// middlewares, it sets aside once and applies once.
func TestAttachedTwice(t *testing.T) {
	b := newBench(t, false)
	var runs atomic.Int32
	ch := b.Channel()
	stop := b.Run(func(router *message.Router) {
		ch.Attach(router)
		ch.Attach(router)
		router.AddMiddleware(ch.Middleware)
	}, func(msg *message.Message) ([]*message.Message, error) {
		runs.Add(1)
		if msg.UUID == "id-0000" {
			return nil, errors.New("failed")
		}
		return []*message.Message{message.NewMessage("", nil)}, b.Apply(msg)
	})
	defer stop()
	b.Publish(shop.Numbered(2)...)
	b.Eventually("one is set aside, one applied", func() bool {
		return len(b.Waiting()) == 1 && len(b.Effects()) == 1 && len(b.Outs.IDs()) == 1
	})
	if n := runs.Load(); n != 3+1 { // attempts do not multiply
		t.Errorf("the handler ran %d times", n)
	}
}

// Bad input: a handler that sets its message aside within its own transaction would wait for itself. It is told so at
// once, and its message ends as a dead letter that says so.
func TestSettingAsideWithinTheTransaction(t *testing.T) {
	b := newBench(t, false)
	ch := b.Channel()
	stop := b.Run(ch.Attach, func(msg *message.Message) ([]*message.Message, error) {
		if msg.UUID != "id-0000" {
			return nil, b.Apply(msg)
		}
		return nil, classify.Permanent(ch.Queue().Place(msg, errors.New("I know better")))
	})
	defer stop()
	b.Publish(shop.Numbered(2)...)
	b.Eventually("one is set aside, one applied", func() bool { return len(b.Waiting()) == 1 && len(b.Effects()) == 1 })
	if text := b.Waiting()[0].Letter.Failure.Description; !strings.Contains(text, "return an error from the handler instead") {
		t.Errorf("it says: %s", text)
	}
}

// Feature D5: a dead-letter store that cannot be written is an error at start-up, not at the first failure.
func TestUnwritableStoreEndsRun(t *testing.T) {
	b := newBench(t, false)
	ch := testkit.Must(spillway.New(t.Context(), spillway.Config{Publisher: b.Letters}))
	testkit.NoError(t, b.Letters.Close())
	if got := refused(t, b.Outs, ch.Attach); got == "it runs" {
		t.Error("the router runs although dead letters have nowhere to go")
	}
}
