package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/campaigns"
	"github.com/watermill-spillway/spillway/redrive/letters"
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
		"panics with awkward": {func(*message.Message) ([]*message.Message, error) { panic(awkward{}) }, classify.ReasonPanic},
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

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// Feature V8, promise P6: a forged origin sends no message anywhere. On a live message it is not believed: the letter
// goes back to the topic where it failed, even if the forged one is allowed.
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
// output is published, and not because its message is applied.
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
		heard, err := hidden.Of(b.Letters).Learn(t.Context(), c.ID)
		testkit.Check(t, err == nil && heard.Redriven == 1 && heard.FailedAgain == 0,
			"before its output is published: %+v, %v", heard, err)
	}
	hold.Store(nil)
	close(held)
	b.Eventually("it failed again", func() bool {
		heard, err := hidden.Of(b.Letters).Learn(t.Context(), c.ID)
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
