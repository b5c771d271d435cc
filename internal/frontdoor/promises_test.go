package frontdoor_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testkit/shop"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Promise P3: the router is closed at random moments while every message waits for its next attempt. Nothing is
// dead-lettered and nothing counted as given up; once the downstream is back, every message takes effect once.
func TestShutdownInBackoffIsNoFailure(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	b := newBench(t, true)
	messages := shop.Numbered(20)
	b.Publish(messages...)

	var healthy atomic.Bool
	slow := func(c *spillway.Config) {
		c.Retry.Attempts, c.Retry.Backoff = 5, middleware.Backoff{Initial: time.Hour, Max: time.Hour, Jitter: middleware.NoJitter}
	}
	handle := func(msg *message.Message) ([]*message.Message, error) {
		if !healthy.Load() {
			return nil, errors.New("the downstream is down")
		}
		return nil, b.Apply(msg)
	}
	for range 10 {
		var failed atomic.Int32
		ch := b.Channel(slow, func(c *spillway.Config) {
			c.Retry.Hooks.OnAttempt = func(context.Context, middleware.Attempt) { failed.Add(1) }
		})
		stop := b.Run(ch.Attach, handle)
		wanted := random.Int32N(int32(len(messages)) + 1)
		b.Eventually("some messages wait in their backoff", func() bool { return failed.Load() >= wanted })
		stop()
	}
	if letters := b.Waiting(); len(letters) != 0 {
		t.Fatalf("%d letters after shutdowns, the first: %+v", len(letters), letters[0].Letter.Failure)
	}
	healthy.Store(true)
	stop := b.Run(b.Channel().Attach, handle)
	defer stop()
	b.Eventually("all took effect", func() bool { return len(b.Effects()) == len(messages) })
	if letters := b.Waiting(); len(letters) != 0 {
		t.Errorf("%d letters in the end", len(letters))
	}
	for i, id := range b.Effects() {
		if id != messages[i].UUID {
			t.Errorf("effect %d is %q", i, id)
		}
	}
}

// Promise P1: the dead-letter store refuses for a while. The message stays unacked, comes again, and is stored once the
// store takes it; the messages around it are handled.
func TestRefusedDeadLetterIsRedelivered(t *testing.T) {
	b := newBench(t, false)
	dead := &gate{Publisher: b.Letters}
	dead.shut.Store(true)
	var deliveries atomic.Int32
	ch := b.Channel(func(c *spillway.Config) {
		c.Publisher = dead
		c.Queue.PublishBackoff = time.Millisecond
	})
	stop := b.Run(ch.Attach, func(msg *message.Message) ([]*message.Message, error) {
		if msg.UUID == "id-0000" {
			deliveries.Add(1)
			return nil, classify.Permanent(errors.New("never"))
		}
		return nil, b.Apply(msg)
	})
	defer stop()
	b.Publish(shop.Numbered(3)...)
	b.Eventually("it came three times", func() bool { return deliveries.Load() >= 3 })
	if n := len(b.Waiting()); n != 0 {
		t.Fatalf("%d letters in a store that refuses", n)
	}
	dead.shut.Store(false)
	b.Eventually("it is stored and the others handled", func() bool { return len(b.Waiting()) == 1 && len(b.Effects()) == 2 })
	after := deliveries.Load()
	b.Publish(message.NewMessage("afterwards", nil)) // a message that is not acked comes again at once on this pub/sub
	b.Eventually("the next is handled", func() bool { return len(b.Effects()) == 3 })
	if deliveries.Load() != after {
		t.Error("it is stored and was not acked")
	}
}

type gate struct {
	message.Publisher
	shut atomic.Bool
}

func (g *gate) Publish(topic string, messages ...*message.Message) error {
	if g.shut.Load() {
		return errors.New("the store is down")
	}
	return g.Publisher.Publish(topic, messages...)
}

// Feature I4, promise P7: outputs cannot be published after the handler's commit, and the router is closed meanwhile.
// On redelivery they are published under the ids they had, and the effect is there once.
func TestOutputsSurviveFailedPublishAfterCommit(t *testing.T) {
	b := newBench(t, true)
	b.Outs.SetRefuse(func(*message.Message) error { return errors.New("the broker is down") })
	patient := func(c *spillway.Config) {
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
	if ids := b.Outs.IDs(); !slices.Contains(ids, tried[0]) || ids[0] == ids[1] || ids[0] == "" {
		t.Errorf("published as %v, tried as %v", ids, tried)
	}
	if n := len(b.Effects()); n != 1 || runs.Load() != 1 {
		t.Errorf("%d effects after %d runs of the handler", n, runs.Load())
	}
}

// Feature D15, P4, P7: an output that no publisher accepts dead-letters its source after bounded tries, with the handler run
// once, and the next message goes on. Redriven when the publisher is repaired, the effect is absorbed and the output
// published under the id it had.
func TestUndeliverableOutput(t *testing.T) {
	b := newBench(t, false)
	b.Outs.SetRefuse(func(msg *message.Message) error {
		if len(msg.Payload) > 1<<20 {
			return errors.New("message was too large")
		}
		return nil
	})
	var runs sync.Map
	stop := b.Run(b.Channel().Attach, func(msg *message.Message) ([]*message.Message, error) {
		count, _ := runs.LoadOrStore(msg.UUID, new(atomic.Int32))
		count.(*atomic.Int32).Add(1)
		payload := []byte("small")
		if msg.UUID == "id-0000" {
			payload = make([]byte, 2<<20)
		}
		return []*message.Message{message.NewMessage("", payload)}, b.Apply(msg)
	})
	defer stop()
	b.Publish(shop.Numbered(2)...)
	b.Eventually("the source is set aside and the next goes on", func() bool { return len(b.Waiting()) == 1 && len(b.Outs.IDs()) == 1 })
	letter := b.Waiting()[0].Letter
	if letter.Failure.Reason != classify.ReasonOutput || letter.Original.UUID != "id-0000" || letter.Failure.Attempts != 1 {
		t.Errorf("letter %+v of %s", letter.Failure, letter.Original.UUID)
	}
	refused := b.Outs.TriedIDs()
	b.Outs.SetRefuse(nil)
	report, err := redrive.Drain(context.Background(), b.Letters, b.Source, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}})
	if err != nil || report.Redriven != 1 {
		t.Fatalf("%+v, %v", report, err)
	}
	b.Eventually("the output is published", func() bool { return len(b.Outs.IDs()) == 2 })
	for _, id := range b.Outs.IDs() {
		if !slices.Contains(refused, id) {
			t.Errorf("output %s was never tried before: %v", id, refused)
		}
	}
	count, _ := runs.Load("id-0000")
	if n := len(b.Effects()); n != 2 || count.(*atomic.Int32).Load() != 1 {
		t.Errorf("%d effects, %d runs", n, count.(*atomic.Int32).Load())
	}
}

// Feature D13: what a failed handler produced is not published.
func TestFailedHandlersOutputsAreNotPublished(t *testing.T) {
	b := newBench(t, false)
	stop := b.Run(b.Channel().Attach, func(msg *message.Message) ([]*message.Message, error) {
		out := []*message.Message{message.NewMessage("of "+msg.UUID, nil)}
		if msg.UUID == "id-0000" {
			return out, errors.New("failed")
		}
		return out, nil
	})
	defer stop()
	b.Publish(shop.Numbered(2)...)
	b.Eventually("one is set aside and one succeeded", func() bool { return len(b.Waiting()) == 1 && len(b.Outs.IDs()) == 1 })
	if tried := b.Outs.TriedIDs(); len(tried) != 1 {
		t.Errorf("published %v", tried)
	}
}

// Promise P7, features I2, I9: duplicates at once and in sequence take effect once; a key whose message was set aside is
// free for its redrive.
func TestEffectsHappenOnce(t *testing.T) {
	b := newBench(t, false)
	var repaired atomic.Bool
	var absorbed atomic.Int32
	ch := b.Channel(func(c *spillway.Config) {
		c.Receiver = &idempotency.ReceiverConfig{Hooks: idempotency.Hooks{OnDuplicate: func(context.Context, idempotency.Key) { absorbed.Add(1) }}}
	})
	stop := b.Run(ch.Attach, func(msg *message.Message) ([]*message.Message, error) {
		if err := b.Apply(msg); err != nil {
			return nil, err
		}
		if msg.UUID == "id-0007" && !repaired.Load() {
			return nil, errors.New("after the effect was written")
		}
		return []*message.Message{message.NewMessage("", nil)}, nil
	})
	defer stop()
	for range 5 {
		b.Publish(shop.Numbered(50)...)
	}
	b.Eventually("all but one took effect, and that was set aside as often as it came", func() bool {
		letters := b.Waiting()
		return len(b.Effects()) == 49 && len(letters) == 1 && letters[0].Seen == 5 && absorbed.Load() == 4*49
	})
	repaired.Store(true)
	if _, err := redrive.Drain(context.Background(), b.Letters, b.Source, redrive.DrainConfig{Rules: redrive.Rules{Allow: []string{"orders"}}}); err != nil {
		t.Fatal(err)
	}
	b.Eventually("the last took effect and all outputs are out", func() bool {
		return len(b.Effects()) == 50 && len(b.Waiting()) == 0 && len(b.Outs.IDs()) == 5*49+1
	})
	if ids := slices.Compact(b.Outs.IDs()); len(ids) != 50 {
		t.Errorf("%d different output ids for 50 effects", len(ids))
	}
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
	if err != nil || len(groups) != 1 || groups[0].Count != 2 || groups[0].StackHash == "" {
		t.Errorf("%+v, %v", groups, err)
	}
}
