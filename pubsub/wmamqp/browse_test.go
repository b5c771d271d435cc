package wmamqp_test

import (
	"context"
	"slices"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/draining"
)

// Feature V5: a dry run of a drain takes nothing from a queue, and a drain that was cut off goes on with what is in it.
func TestDraining(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
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

// Feature V1: the backlog is what is ready. Browse leaves messages in their order. Both say which queue is missing, and
// Browse that its context ended.
func TestBrowse(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	queue := b.queue()
	ids, sub := b.numbered(queue, 4), b.subscriber()
	allBack := func() {
		eventually(t, "all are back", func() bool { return testkit.Must(sub.Backlog(t.Context(), queue)) == 4 })
	}
	for range 2 {
		var seen []string
		err := sub.Browse(t.Context(), queue, func(msg *message.Message) bool {
			seen = append(seen, msg.UUID)
			return len(seen) < 3
		})
		if err != nil || !slices.Equal(seen, ids[:3]) {
			t.Fatal(seen, err)
		}
		allBack()
	}
	missing := queue + "-missing"
	says(t, sub.Browse(t.Context(), missing, func(*message.Message) bool { return true }), missing)
	says(t, testkit.Err(sub.Backlog(t.Context(), missing)), missing, "404")
	ctx, cancel := context.WithCancel(t.Context())
	testkit.Is(t, sub.Browse(ctx, queue, func(*message.Message) bool { cancel(); return true }), context.Canceled)
	allBack()
	b.closed("the subscriber", sub.Close())
	says(t, testkit.Err(sub.Backlog(t.Context(), queue)), "closed")
}
