package wmsql_test

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature D9: what is published with a message's context commits with it, each message of a call where it belongs.
func TestPublishWithContext(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		var attempts deliveries
		seen := -1
		b.run(b.subscriber(), func(msg *message.Message) ([]*message.Message, error) {
			attempt := attempts.add(msg.UUID)
			of := func(id string) *message.Message { return message.NewMessageWithContext(msg.Context(), id, nil) }
			err := b.pub.Publish(b.outs, of("inside"), message.NewMessage("outside", nil), of("inside too"))
			if seen < 0 {
				seen = b.rows(b.outs)
			}
			if attempt == 1 {
				return nil, errors.Join(err, errors.New("once more"))
			}
			return nil, err
		})
		b.publish("x")
		b.drained()
		counts := map[string]int{}
		b.each(b.outs, func(msg *message.Message) { counts[msg.UUID]++ })
		testkit.Equal(t, "messages", fmt.Sprint(counts), "map[inside:1 inside too:1 outside:2]")
		testkit.Equal(t, "what others saw before the commit", seen, 1)
	})
}

// A table is made outside of the handler's transaction, which MySQL would commit. No publisher waits for another.
func TestInitializeInsideHandler(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		var attempts deliveries
		b.run(b.subscriber(), func(msg *message.Message) ([]*message.Message, error) {
			attempt := attempts.add(msg.UUID)
			if err := b.write(msg, "effect"); err != nil {
				return nil, err
			}
			for range 2 { // the second finds a table in which the first has written and not committed
				pub, out := b.publisher(), message.NewMessageWithContext(msg.Context(), "", nil)
				if err := errors.Join(pub.InitializeTopics(b.topic+".new"),
					pub.Publish(b.topic+".new", out)); err != nil {
					return nil, err
				}
			}
			if attempt == 1 {
				return nil, errors.New("once more")
			}
			return nil, nil
		})
		b.publish("x")
		b.drained()
		testkit.Equal(t, "effects", len(b.effects()["x"]), 1)
		testkit.Equal(t, "published", b.rows(b.topic+".new"), 2)
		testkit.Equal(t, "attempts", attempts.get()["x"], 2)
	})
}

// The context of a message that is settled is worth nothing any more, and says so.
func TestPublishTooLate(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.publish("nacked", "next")
		sub := b.subscriber()
		messages := b.messages(sub)
		nacked := <-messages
		nacked.Nack()
		again := <-messages
		err := b.pub.Publish(b.outs, message.NewMessageWithContext(nacked.Context(), "", nil))
		testkit.Check(t, errors.Is(err, sql.ErrTxDone), "%v", err)
		again.Ack()
		(<-messages).Ack()
		b.until("both are acknowledged", func() bool { return b.backlog(b.topic, "") == 0 })
		acked := message.NewMessageWithContext(again.Context(), "by itself", nil)
		testkit.Is(t, b.pub.Publish(b.outs, acked), nil)
		testkit.Equal(t, "published", b.rows(b.outs), 1)
	})
}
