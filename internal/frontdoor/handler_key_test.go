package frontdoor_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/shop"
)

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
	if got, want := b.Effects(), []string{"billing 1", "billing 2", "billing 3", "prices 1", "prices 3"}; !slices.Equal(got, want) {
		t.Errorf("effects %q", got)
	}
	testkit.Equal(t, "letters", len(b.Waiting()), 0)
}

// Bad input: a name that no handler of the router has is an error of Run: the handler that was meant would have another
// key.
func TestHandlerKeyMisspelt(t *testing.T) {
	b := newBench(t, false)
	got := refused(t, &shop.Outputs{}, b.keyed("biling", nil).Attach)
	if !strings.Contains(got, `Config.Receiver.Handlers has "biling"`) || !strings.Contains(got, `use a name of "billing"`) {
		t.Error(got)
	}
}
