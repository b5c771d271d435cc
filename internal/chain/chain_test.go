package chain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func noting(name string, notes *[]string) Step {
	return func(next Handler) Handler {
		return func(c *Call) ([]*message.Message, Outcome) {
			*notes = append(*notes, name)
			defer func() { *notes = append(*notes, "/"+name) }()
			return next(c)
		}
	}
}

// Decision 3: parts stand around the handler in the order given, the first outermost, and are applied once per handler.
func TestOrderOfParts(t *testing.T) {
	var notes []string
	applied := 0
	count := func(next Handler) Handler { applied++; return next }
	h := EnterParts(LinkOf(count), LinkOf(noting("a", &notes)), LinkOf(noting("b", &notes)))(func(*message.Message) ([]*message.Message, error) {
		notes = append(notes, "handler")
		return nil, nil
	})
	for range 3 {
		_, _ = h(ordinary().msg)
	}
	want := []string{"a", "b", "handler", "/b", "/a"}
	testkit.Require(t, slices.Equal(notes, slices.Concat(want, want, want)) && applied == 1,
		"got %v, applied %d times", notes, applied)
}

// Decision 12: messages of a wrapped subscriber pass by a chain, steps and snapshot alike; all others do not.
func TestOwnMessagesPassBy(t *testing.T) {
	pubsub := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 1}, watermill.NopLogger{})
	sub := testkit.Must(Own(pubsub))
	messages := testkit.Must(sub.Subscribe(context.Background(), "letters"))
	testkit.NoError(t, pubsub.Publish("letters", ordinary().msg))
	own := <-messages
	testkit.Check(t, IsOwn(own.Context()) && !IsOwn(context.Background()), "own messages are not told from others")
	var notes []string
	fails := func(m *message.Message) ([]*message.Message, error) { m.UUID = "changed"; return nil, errBoom }
	h := Enter(noting("step", &notes))(fails)
	for range 2 {
		if _, err := h(own); err != errBoom || len(notes) != 0 || own.UUID != "changed" {
			t.Errorf("an own message met the chain: error %v, notes %v, id %q", err, notes, own.UUID)
		}
	}
	other := ordinary()
	if _, err := h(other.msg); err != errBoom || len(notes) != 2 {
		t.Errorf("another message passed by: error %v, notes %v", err, notes)
	}
	other.want(t)
	own.Ack()
	testkit.NoError(t, sub.Close())
}

// Feature I3: the error of a message that is requeued is no failure for any part further out, also where parts are
// middlewares of their own.
func TestRequeueThroughChains(t *testing.T) {
	requeued := Requeued(errBoom)
	testkit.Check(t, IsAborted(requeued) && errors.Is(requeued, context.Canceled) && Aborted(requeued) == requeued,
		"%v, and %v", requeued, Aborted(requeued))
	requeues := func(Handler) Handler {
		return func(c *Call) ([]*message.Message, Outcome) { return nil, OutcomeOf(requeued) }
	}
	var seen Next
	asks := func(next Handler) Handler {
		return func(c *Call) ([]*message.Message, Outcome) {
			out, o := next(c)
			seen = o.Next
			o.Why = fmt.Errorf("wrapped: %w", o.Why)
			return out, o
		}
	}
	inner := Enter(requeues)(nil)
	_, err := Enter(asks)(inner)(ordinary().msg)
	testkit.Check(t, seen == Requeue && errors.Is(err, errBoom), "%s: %v", seen, err)
	seen = Done
	if _, _ = Enter(asks)(Enter(asks)(inner))(ordinary().msg); seen != Requeue {
		t.Errorf("%s after two chains", seen)
	}
	boom := func(*message.Message) ([]*message.Message, error) { return nil, errBoom }
	if _, _ = Enter(asks)(boom)(ordinary().msg); seen != Failed {
		t.Errorf("a failure is %s", seen)
	}
}

// Decision 29: a message that was delivered again is the same message, whatever broker and adapter added to it; and what
// they added is in no copy.
func TestAddedIsNotTheProducers(t *testing.T) {
	msg := message.NewMessage("m", []byte("body"))
	msg.Metadata = message.Metadata{"tenant": "acme"}
	again := msg.Copy()
	again.Metadata["_watermill_amqp_redelivered"], again.Metadata["x-acquired-count"] = "true", "2"
	first, second := Keep(msg), Keep(again)
	one, _ := first.Fingerprint()
	two, _ := second.Fingerprint()
	if one != two || len(second.Original().Metadata) != 1 || len(again.Metadata) != 3 {
		t.Errorf("the same %t, a copy has %v, the message %v", one == two, second.Original().Metadata, again.Metadata)
	}
	second.Restore()
	if len(again.Metadata) != 3 {
		t.Errorf("the handler sees %v", again.Metadata)
	}
}
