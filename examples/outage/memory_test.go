package main

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// A message stays in the topic until it is acked: it comes again after a nack, and the next subscription gets what was
// not settled.
func TestMemory(t *testing.T) {
	topic := newMemory(2)
	messages := testkit.Must(topic.Subscribe(t.Context(), ""))
	ids := []string{"a", "b", "c"}
	for _, id := range ids {
		testkit.NoError(t, topic.Publish("", message.NewMessage(id, nil)))
	}
	a, b := <-messages, <-messages
	select {
	case msg := <-messages:
		t.Errorf("%s is a third at the same time", msg.UUID)
	default:
	}
	a.Ack()
	b.Nack()
	seen := map[string]bool{}
	for len(seen) < 2 {
		msg := <-messages
		seen[msg.UUID] = true
		msg.Ack()
	}
	if !seen["b"] || !seen["c"] {
		t.Errorf("%v", seen)
	}
	testkit.NoError(t, topic.Close())
	if n, err := topic.backlog(context.Background()); err != nil || n != 0 {
		t.Errorf("%d are left, %v", n, err)
	}
}

// Closing ends the contexts of messages, whose handlers then give them back: they stay in the topic.
func TestMemoryCloses(t *testing.T) {
	topic := newMemory(1)
	messages := testkit.Must(topic.Subscribe(t.Context(), ""))
	testkit.NoError(t, topic.Publish("", message.NewMessage("a", nil), message.NewMessage("b", nil)))
	msg := <-messages
	go func() {
		<-msg.Context().Done()
		msg.Nack()
	}()
	testkit.NoError(t, topic.Close())
	if n, err := topic.backlog(context.Background()); err != nil || n != 2 {
		t.Errorf("%d are left, %v", n, err)
	}
}
