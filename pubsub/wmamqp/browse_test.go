package wmamqp_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit/draining"
)

// Feature V5: a dry run of a drain takes nothing from a queue, and a drain that was cut off goes on with what is in it.
func TestDraining(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			b := newBroker(t)
			topic := b.topic(".dlq.quarantine")
			b.declare(topic, kind)
			b.declare(topic+".dlq", kind)
			draining.Test(t, draining.Broker{
				Topic: topic, Publisher: b.publisher(),
				Subscriber: func() draining.Subscriber { return b.subscriber() },
				InDoubt:    1,
			})
		})
	}
}

// Browse leaves messages in their order, and says which queue is missing, and that its context ended.
func TestBrowse(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	queue := b.queue()
	ids := b.numbered(queue, 4)
	sub := b.subscriber()
	for range 2 {
		var seen []string
		err := sub.Browse(t.Context(), queue, func(msg *message.Message) bool {
			seen = append(seen, msg.UUID)
			return len(seen) < 3
		})
		if err != nil || len(seen) != 3 || seen[0] != ids[0] || seen[2] != ids[2] {
			t.Fatal(seen, err)
		}
		eventually(t, "all are back", func() bool { return b.ready(queue) == 4 })
	}
	if err := sub.Browse(t.Context(), queue+".missing", func(*message.Message) bool { return true }); err == nil {
		t.Error("a queue that is missing is no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := sub.Browse(ctx, queue, func(*message.Message) bool { cancel(); return true })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	eventually(t, "all are back", func() bool { return b.ready(queue) == 4 })
}
