package poison

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/privacy"
	"github.com/watermill-spillway/spillway/settings"
)

// Promise P3, decision 2: nacked by its handler, a message is on its way back and is not placed too; acked by its
// handler, which ends its context, it has not gone away.
func TestQueueHandlerSettlesItself(t *testing.T) {
	dead := &sink{}
	nacked := false
	r := start(t, "orders", dead, QueueConfig{}, func(msg *message.Message) ([]*message.Message, error) {
		switch {
		case msg.UUID == "nack" && !nacked:
			nacked = true
			msg.Nack()
			return nil, errors.New("nacked")
		case msg.UUID == "ack":
			msg.Ack()
			<-msg.Context().Done()
			return nil, errors.New("failed after the ack")
		}
		return []*message.Message{message.NewMessage(msg.UUID, nil)}, nil
	})
	r.publish(message.NewMessage("nack", nil))
	r.publish(message.NewMessage("ack", nil))
	eventually(t, "both are settled", func() bool { return len(dead.in("orders.dlq")) == 1 && len(r.outs.in("out")) == 1 })
	testkit.Equal(t, "placed", dead.in("orders.dlq")[0].UUID, "ack")
}

func masking(t *testing.T, mask func(string) string) *privacy.Redactor {
	return testkit.Must(privacy.New(privacy.Rules{Mask: mask}))
}

// Feature D14: masks see every text and every value before any sink; where one panics the value is withheld.
func TestQueueMasks(t *testing.T) {
	hide := func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }
	for _, mask := range []func(string) string{hide, func(string) string { panic("hunter2") }} {
		dead := &sink{}
		msg := message.NewMessage("id", []byte("hunter2 in the payload stays"))
		msg.Metadata["secret"] = "hunter2"
		queue := newQueue(t, dead, QueueConfig{
			Shared: settings.Shared{Privacy: masking(t, mask)}, MaskMetadata: func(_, value string) string { return mask(value) },
		})
		testkit.NoError(t, queue.Place(msg, panicking(errors.New("password=hunter2"))))
		letter := dead.in("unknown.dlq")[0]
		for key, value := range letter.Metadata {
			testkit.Check(t, !strings.Contains(value, "hunter2"), "%s still tells: %q", key, value)
		}
		testkit.Check(t, string(letter.Payload) == "hunter2 in the payload stays", "payload %q", letter.Payload)
	}
}

// Feature D4: after the deadline of the message's context every sink still has its one try.
func TestPlaceAfterDeadlineTriesFallbacks(t *testing.T) {
	last := &sink{}
	queue := testkit.Must(
		NewQueue(&sink{refuse: func(int, string, *message.Message) error { return errors.New("down") }}, QueueConfig{
			Fallbacks: []Sink{{Publisher: last}},
		}))
	ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	testkit.NoError(t, queue.Place(message.NewMessageWithContext(ctx, "id", nil), errors.New("too slow")))
	testkit.Check(t, last.topics() == "unknown.dlq:1", "placed in %q", last.topics())
}
