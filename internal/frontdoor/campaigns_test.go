package frontdoor_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
	"github.com/watermill-spillway/spillway/seal"
	"github.com/watermill-spillway/spillway/settings"
)

// campaigning runs a worker on the letters of store until the test ends, and returns its campaigns.
func (b *bench) campaigning(store *letters.Store) *campaigns.Campaigns {
	b.T.Helper()
	all := testkit.Must(campaigns.New(b.T.Context(), store, campaigns.Config{Allow: []string{"orders"}}))
	worker := testkit.Must(campaigns.NewWorker(all, b.Source, campaigns.WorkerConfig{Poll: 5 * time.Millisecond}))
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	b.T.Cleanup(func() {
		stop()
		if err := testkit.Receive(b.T, "the worker ends", done); err != nil {
			b.T.Error(err)
		}
	})
	return all
}

// campaign starts a campaign over what waits, and returns it as soon as it is as it should be.
func (b *bench) campaign(all *campaigns.Campaigns, r campaigns.Request, until func(campaigns.Campaign) bool) campaigns.Campaign {
	b.T.Helper()
	r.Act = campaigns.Act{By: "ann", Reason: "a test"}
	c, err := all.Start(b.T.Context(), r)
	testkit.NoError(b.T, err)
	testkit.Eventually(b.T, "the campaign", func() bool {
		c, err = all.Get(b.T.Context(), c.ID)
		return err == nil && until(c)
	}, func() string { return fmt.Sprintf("%+v %v", c, err) })
	return c
}

// Features V7, V12, R10, D14, promise P6, decision 22: messages without an id go through stages, become sealed letters,
// are redriven, and fail again in the same way. The campaign knows of each of them, without a receiver, and pauses
// itself.
func TestCampaignLearnsOfNoIDs(t *testing.T) {
	b := newBench(t, false)
	ring := testkit.Must(seal.ParseKeyring(testkit.Keyring("key-1")))
	sealer := testkit.Must(seal.New(ring))
	store := testkit.Must(letters.NewStore(t.Context(), b.DB, settings.Shared{Service: "shop", Seal: sealer}))
	ch := b.Channel(b.staged(nil), func(c *spillway.Config) {
		c.Publisher, c.Seal, c.Idempotency = store, sealer, nil
	})
	stop := b.runStaged(ch, func(*message.Message) ([]*message.Message, error) {
		return nil, classify.Transient(errors.New("the customer is unknown"))
	})
	defer stop()
	const n = 12
	for i := range n {
		b.Publish(message.NewMessage("", []byte(fmt.Sprintf(`{"n":%d}`, i))))
	}
	b.Eventually("all are letters", func() bool { return len(b.Waiting()) == n })
	all := b.campaigning(store)
	c := b.campaign(all, campaigns.Request{StopAfter: 5}, func(c campaigns.Campaign) bool { return c.FailedAgain == n })
	testkit.Check(t, c.NotHeard == 0 && c.Redriven == n, "%+v", c)
	if again := b.Waiting(); len(again) != n || !again[0].Sealed || again[0].Redrive.ID != c.ID || again[0].Redrive.Letter == "" {
		t.Errorf("%d letters: %+v", len(again), again[0])
	}
}

// Features D15, I4, V12, promise P7: a redriven letter whose output could not be published has succeeded when the
// output is published, and not because its message is applied. The handler runs again only if a person chose that, and
// it is on record.
func TestCampaignOfUndeliverableOutputs(t *testing.T) {
	b := newBench(t, false)
	var repaired atomic.Bool
	var hold atomic.Pointer[chan struct{}]
	b.Outs.SetRefuse(func(msg *message.Message) error {
		if until := hold.Load(); until != nil {
			<-*until
		}
		if string(msg.Payload) == "too large" {
			return classify.Permanent(errors.New("the broker refuses it"))
		}
		return nil
	})
	ch := b.Channel(func(c *spillway.Config) { c.Service, c.DB, c.Publisher, c.Idempotency = "shop", b.DB, nil, nil })
	var handled atomic.Int32
	stop := b.Run(ch.Attach, func(msg *message.Message) ([]*message.Message, error) {
		handled.Add(1)
		out := message.NewMessage("out-of-"+msg.UUID, []byte("too large"))
		if repaired.Load() {
			out.Payload = []byte("fits")
		}
		return []*message.Message{out}, b.Apply(msg)
	})
	defer stop()
	b.Publish(message.NewMessage("id-1", nil))
	b.Eventually("it is a letter", func() bool { return len(b.Waiting()) == 1 })
	repaired.Store(true)
	all := b.campaigning(b.Letters)

	held := make(chan struct{})
	hold.Store(&held)
	c := b.campaign(all, campaigns.Request{}, func(c campaigns.Campaign) bool { return c.State == campaigns.Finished })
	for range 3 {
		if heard, err := b.Letters.Inside().Learn(t.Context(), c.ID); err != nil || heard.Redriven != 1 || heard.FailedAgain != 0 {
			t.Errorf("before its output is published: %+v, %v", heard, err)
		}
	}
	hold.Store(nil)
	close(held)
	b.Eventually("it failed again", func() bool {
		heard, err := b.Letters.Inside().Learn(t.Context(), c.ID)
		return err == nil && heard.FailedAgain == 1 && heard.Redriven == 0
	})
	n := handled.Load()
	testkit.Check(t, n == 1 && len(b.Outs.IDs()) <= 0, "the handler ran %d times, outputs %q", n, b.Outs.IDs())
	b.campaign(all, campaigns.Request{HandleAgain: true}, func(c campaigns.Campaign) bool { return c.Succeeded == 1 })
	if n, ids := handled.Load(), b.Outs.IDs(); n != 2 || len(ids) != 1 || len(b.Waiting()) > 0 {
		t.Errorf("the handler ran %d times, outputs %q, %d letters wait", n, ids, len(b.Waiting()))
	}
	audit, err := b.Letters.Audit(t.Context(), letters.EventFilter{Kinds: []letters.EventKind{letters.EventKeyRemoved}})
	testkit.Check(t, err == nil && len(audit) == 1 && audit[0].By == "ann" && audit[0].Reason == "a test",
		"%+v, %v", audit, err)
}
