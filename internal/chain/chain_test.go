package chain

import (
	"context"
	"slices"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/testkit"
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

// Decision 3: steps stand around the handler in the order given, the first outermost, and are applied once per handler.
func TestOrderOfSteps(t *testing.T) {
	var notes []string
	applied := 0
	count := func(next Handler) Handler { applied++; return next }
	h := Enter(count, noting("a", &notes), noting("b", &notes))(func(*message.Message) ([]*message.Message, error) {
		notes = append(notes, "handler")
		return nil, nil
	})
	for range 3 {
		_, _ = h(ordinary().msg)
	}
	want := []string{"a", "b", "handler", "/b", "/a"}
	if !slices.Equal(notes, slices.Concat(want, want, want)) || applied != 1 {
		t.Fatalf("got %v, applied %d times", notes, applied)
	}
}

// Decision 3: parts stand around the handler in the order given.
func TestOrderOfParts(t *testing.T) {
	var notes []string
	_, _ = EnterParts(LinkOf(noting("a", &notes)), LinkOf(noting("b", &notes)))(func(*message.Message) ([]*message.Message, error) { return nil, nil })(ordinary().msg)
	if want := []string{"a", "b", "/b", "/a"}; !slices.Equal(notes, want) {
		t.Errorf("got %v", notes)
	}
}

// Decision 12: messages of a wrapped subscriber pass by a chain, steps and snapshot alike; all others do not.
func TestOwnMessagesPassBy(t *testing.T) {
	pubsub := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 1}, watermill.NopLogger{})
	sub := testkit.Must(Own(pubsub))
	messages := testkit.Must(sub.Subscribe(context.Background(), "letters"))
	testkit.NoError(t, pubsub.Publish("letters", ordinary().msg))
	own := <-messages
	if !IsOwn(own.Context()) || IsOwn(context.Background()) {
		t.Error("own messages are not told from others")
	}
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
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
}

// Promise P2: Arrived tells what metadata was, whatever the handler made of it since.
func TestArrived(t *testing.T) {
	c := begin(ordinary().msg)
	defer c.Release()
	c.Msg.Metadata.Set("tenant", "other")
	c.Msg.Metadata.Set("late", "x")
	if c.Arrived("tenant") != "acme" || c.Arrived("late") != "" || c.Arrived("empty") != "" {
		t.Fatalf("got %q, %q, %q", c.Arrived("tenant"), c.Arrived("late"), c.Arrived("empty"))
	}
}
