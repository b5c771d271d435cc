package e2e_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/shop"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/redrive/letters"
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
	text := b.Waiting()[0].Letter.Failure.Description
	testkit.Check(t, strings.Contains(text, "return an error from the handler instead"), "it says: %s", text)
}

// Feature D5: a dead-letter store that cannot be written is an error at start-up, not at the first failure.
func TestUnwritableStoreEndsRun(t *testing.T) {
	b := newBench(t, false)
	ch := testkit.Must(spillway.New(t.Context(), spillway.Config{Publisher: b.Letters}))
	testkit.NoError(t, b.Letters.Close())
	testkit.Check(t, refused(t, b.Outs, ch.Attach) != "it runs",
		"the router runs although dead letters have nowhere to go")
}

// Feature I4, promise P7: outputs cannot be published after the handler's commit, and the router is closed meanwhile.
// On redelivery they are published under the ids they had, and the effect is there once.
func TestOutputsSurviveFailedPublishAfterCommit(t *testing.T) {
	b := newBench(t, true)
	b.Outs.SetRefuse(func(*message.Message) error { return errors.New("the broker is down") })
	patient := func(c *spillway.Config) {
		c.DrainTimeout = -1
		c.Outputs.Attempts, c.Outputs.Backoff = 1000, middleware.Backoff{Initial: time.Millisecond, Max: 50 * time.Millisecond}
	}
	var runs atomic.Int32
	handle := func(msg *message.Message) ([]*message.Message, error) {
		runs.Add(1)
		return []*message.Message{message.NewMessage("", []byte("first")), message.NewMessage("random", []byte("second"))}, b.Apply(msg)
	}
	b.Publish(shop.Numbered(1)...)
	stop := b.Run(b.Channel(patient).Attach, handle)
	b.Eventually("publishing was tried after the commit", func() bool { return len(b.Effects()) == 1 && len(b.Outs.TriedIDs()) >= 2 })
	stop()
	if letters := b.Waiting(); len(letters) != 0 {
		t.Fatalf("closing the router dead-lettered the source: %+v", letters[0].Letter.Failure)
	}
	tried := b.Outs.TriedIDs()
	b.Outs.SetRefuse(nil)

	stop = b.Run(b.Channel(patient).Attach, handle)
	defer stop()
	b.Eventually("both outputs are published", func() bool { return len(b.Outs.IDs()) == 2 })
	ids := b.Outs.IDs()
	testkit.Check(t, slices.Contains(ids, tried[0]) && ids[0] != ids[1] && ids[0] != "",
		"published as %v, tried as %v", ids, tried)
	n := len(b.Effects())
	testkit.Check(t, n == 1 && runs.Load() == 1, "%d effects after %d runs of the handler", n, runs.Load())
}

// Feature D1, V9: the same panic is one cause, whether it came at the first attempt or after retries.
func TestSamePanicIsOneGroup(t *testing.T) {
	b := newBench(t, false)
	var attempts sync.Map
	stop := b.Run(b.Channel().Attach, func(msg *message.Message) ([]*message.Message, error) {
		count, _ := attempts.LoadOrStore(msg.UUID, new(atomic.Int32))
		if msg.UUID == "id-0000" && count.(*atomic.Int32).Add(1) == 1 {
			return nil, classify.Transient(errors.New("not yet"))
		}
		var assets []string
		return nil, errors.New(assets[len(msg.UUID)])
	})
	defer stop()
	b.Publish(shop.Numbered(2)...)
	b.Eventually("both are set aside", func() bool { return len(b.Waiting()) == 2 })
	groups, err := b.Letters.Groups(t.Context(), letters.Filter{})
	testkit.Check(t, err == nil && len(groups) == 1 && groups[0].Count == 2 && groups[0].StackHash != "",
		"%+v, %v", groups, err)
}

var byOrder = idempotency.HandlerKey{Key: idempotency.ByMetadata("order"), Version: idempotency.VersionMetadata("version")}

// keyed is a channel one of whose handlers alone knows messages by their order and version.
func (b *bench) keyed(handler string, onStale func(context.Context, idempotency.Key, int64, int64)) *spillway.Channel {
	b.T.Helper()
	return testkit.Must(
		spillway.New(b.T.Context(), spillway.Config{DB: b.DB, Service: "shop", Receiver: &idempotency.ReceiverConfig{
			Handlers: map[string]idempotency.HandlerKey{handler: byOrder}, Hooks: idempotency.Hooks{OnStale: onStale},
		}}))
}

// both runs a router with the handlers "billing" and "prices" on one topic.
func (b *bench) both(attach func(*message.Router), handle message.NoPublishHandlerFunc) (stop func()) {
	b.T.Helper()
	return testkit.RunRouter(b.T, watermill.NopLogger{}, func(router *message.Router) {
		attach(router)
		for _, name := range []string{"billing", "prices"} {
			router.AddConsumerHandler(name, "orders", shop.StaysOpen(b.Source), handle)
		}
	})
}

// Features I5, I6: one handler of a channel has a business key and a version. It skips what is stale. Its neighbour on
// the same topic knows messages by their ids, and applies each.
func TestHandlerKey(t *testing.T) {
	b := newBench(t, false)
	var stale atomic.Int32
	channel := b.keyed("prices", func(context.Context, idempotency.Key, int64, int64) { stale.Add(1) })
	defer b.both(channel.Attach, func(msg *message.Message) error {
		msg.UUID = message.HandlerNameFromCtx(msg.Context()) + " " + msg.Metadata.Get("version")
		return b.Apply(msg)
	})()
	for i, version := range []string{"1", "3", "2"} {
		msg := message.NewMessage(string(rune('a'+i)), []byte(version))
		msg.Metadata.Set("order", "o-1")
		msg.Metadata.Set("version", version)
		b.Publish(msg)
		b.Eventually("both have ended it", func() bool { return len(b.Effects())+int(stale.Load()) == 2*(i+1) })
	}
	got, want := b.Effects(), []string{"billing 1", "billing 2", "billing 3", "prices 1", "prices 3"}
	testkit.Check(t, slices.Equal(got, want), "effects %q", got)
	testkit.Equal(t, "letters", len(b.Waiting()), 0)
}

// Bad input: a name that no handler of the router has is an error of Run: the handler that was meant would have another
// key.
func TestHandlerKeyMisspelt(t *testing.T) {
	b := newBench(t, false)
	got := refused(t, &shop.Outputs{}, b.keyed("biling", nil).Attach)
	testkit.Check(t, strings.Contains(got, `Config.Receiver.Handlers has "biling"`) &&
		strings.Contains(got, `use a name of "billing"`), "%v", got)
}
