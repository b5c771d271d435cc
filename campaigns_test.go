package spillway_test

import (
	"bytes"
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
)

// campaigning runs a worker on the letters of store until the test ends, and returns its campaigns.
func (b *bench) campaigning(store *letters.Store) *campaigns.Campaigns {
	b.t.Helper()
	all, err := campaigns.New(b.t.Context(), store, campaigns.Config{Allow: []string{"orders"}})
	if err != nil {
		b.t.Fatal(err)
	}
	worker, err := campaigns.NewWorker(all, b.source, campaigns.WorkerConfig{Poll: 5 * time.Millisecond})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	b.t.Cleanup(func() {
		stop()
		if err := testkit.Receive(b.t, "the worker ends", done); err != nil {
			b.t.Error(err)
		}
	})
	return all
}

// campaign starts a campaign over what waits, and returns it as soon as it is as it should be.
func (b *bench) campaign(all *campaigns.Campaigns, r campaigns.Request, until func(campaigns.Campaign) bool) campaigns.Campaign {
	b.t.Helper()
	r.Act = campaigns.Act{By: "ann", Reason: "a test"}
	c, err := all.Start(b.t.Context(), r)
	if err != nil {
		b.t.Fatal(err)
	}
	testkit.Eventually(b.t, "the campaign", func() bool {
		c, err = all.Get(b.t.Context(), c.ID)
		return err == nil && until(c)
	}, func() string { return fmt.Sprintf("%+v %v", c, err) })
	return c
}

// Features V7, V12, R10, D14, promise P6, decision 22: messages without an id go through stages, become sealed letters, are redriven, and
// fail again in the same way. The campaign knows of each of them, without a receiver, and pauses itself.
func TestCampaignLearnsOfNoIDs(t *testing.T) {
	b := newBench(t, false)
	ring, err := seal.NewKeyring("key-1", map[string][]byte{"key-1": bytes.Repeat([]byte{7}, seal.SecretSize)})
	if err != nil {
		t.Fatal(err)
	}
	sealer, err := seal.New(ring, seal.Config{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := letters.NewStore(t.Context(), b.db, letters.StoreConfig{Service: "shop", Seal: sealer})
	if err != nil {
		t.Fatal(err)
	}
	ch := b.channel(b.staged(nil), func(c *spillway.Config) {
		c.Publisher, c.Seal, c.Idempotency = store, sealer, nil
	})
	stop := b.runStaged(ch, func(*message.Message) ([]*message.Message, error) {
		return nil, classify.Transient(errors.New("the customer is unknown"))
	})
	defer stop()
	const n = 12
	for i := range n {
		b.publish(message.NewMessage("", []byte(fmt.Sprintf(`{"n":%d}`, i))))
	}
	b.eventually("all are letters", func() bool { return len(b.waiting()) == n })
	all := b.campaigning(store)
	c := b.campaign(all, campaigns.Request{StopAfter: 5}, func(c campaigns.Campaign) bool { return c.FailedAgain == n })
	if c.NotHeard != 0 || c.Redriven != n {
		t.Errorf("%+v", c)
	}
	if again := b.waiting(); len(again) != n || !again[0].Sealed || again[0].Redrive.ID != c.ID || again[0].Redrive.Letter == "" {
		t.Errorf("%d letters: %+v", len(again), again[0])
	}
}

// Features D15, I4, V12, promise P7: a redriven letter whose output could not be published has succeeded when the output is published, and
// not because its message is applied. The handler runs again only if a person chose that, and it is on record.
func TestCampaignOfUndeliverableOutputs(t *testing.T) {
	b := newBench(t, false)
	var repaired atomic.Bool
	var hold atomic.Pointer[chan struct{}]
	b.outs.setRefuse(func(msg *message.Message) error {
		if until := hold.Load(); until != nil {
			<-*until
		}
		if string(msg.Payload) == "too large" {
			return classify.Permanent(errors.New("the broker refuses it"))
		}
		return nil
	})
	ch := b.channel(func(c *spillway.Config) { c.Service, c.DB, c.Publisher, c.Idempotency = "shop", b.db, nil, nil })
	var handled atomic.Int32
	stop := b.run(ch.Attach, func(msg *message.Message) ([]*message.Message, error) {
		handled.Add(1)
		out := message.NewMessage("out-of-"+msg.UUID, []byte("too large"))
		if repaired.Load() {
			out.Payload = []byte("fits")
		}
		return []*message.Message{out}, b.apply(msg)
	})
	defer stop()
	b.publish(message.NewMessage("id-1", nil))
	b.eventually("it is a letter", func() bool { return len(b.waiting()) == 1 })
	repaired.Store(true)
	all := b.campaigning(b.letters)

	held := make(chan struct{})
	hold.Store(&held)
	c := b.campaign(all, campaigns.Request{}, func(c campaigns.Campaign) bool { return c.State == campaigns.Finished })
	for range 3 {
		if heard, err := b.letters.Learn(t.Context(), c.ID); err != nil || heard != (letters.Outcome{Redriven: 1}) {
			t.Errorf("before its output is published: %+v, %v", heard, err)
		}
	}
	hold.Store(nil)
	close(held)
	b.eventually("it failed again", func() bool {
		heard, err := b.letters.Learn(t.Context(), c.ID)
		return err == nil && heard == letters.Outcome{FailedAgain: 1}
	})
	if n := handled.Load(); n != 1 || len(b.outs.ids()) > 0 {
		t.Errorf("the handler ran %d times, outputs %q", n, b.outs.ids())
	}
	b.campaign(all, campaigns.Request{HandleAgain: true}, func(c campaigns.Campaign) bool { return c.Succeeded == 1 })
	if n, ids := handled.Load(), b.outs.ids(); n != 2 || len(ids) != 1 || len(b.waiting()) > 0 {
		t.Errorf("the handler ran %d times, outputs %q, %d letters wait", n, ids, len(b.waiting()))
	}
	audit, err := b.letters.Audit(t.Context(), letters.EventFilter{Kinds: []letters.EventKind{letters.EventKeyRemoved}})
	if err != nil || len(audit) != 1 || audit[0].By != "ann" || audit[0].Reason != "a test" {
		t.Errorf("%+v, %v", audit, err)
	}
}
