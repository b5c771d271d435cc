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
