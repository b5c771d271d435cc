package wmsql_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// Feature D9: what a handler publishes with the context of its message commits with it, and is undone with a failed
// attempt; a call with messages of several contexts puts each where it belongs.
func TestPublishWithContext(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		var attempts deliveries
		seen := -1
		b.run(b.subscriber(), func(msg *message.Message) ([]*message.Message, error) {
			attempt := attempts.add(msg.UUID)
			of := func(ctx context.Context, id string) *message.Message {
				out := message.NewMessageWithContext(ctx, id, nil)
				return out
			}
			err := b.pub.Publish(b.outs, of(msg.Context(), "inside"), of(context.Background(), "outside"), of(msg.Context(), "inside too"))
			if seen < 0 {
				seen = b.backlogOf(b.outs)
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
		if len(counts) != 3 || counts["inside"] != 1 || counts["inside too"] != 1 || counts["outside"] != 2 || seen != 1 {
			t.Errorf("%v, of which others saw %d before the commit", counts, seen)
		}
	})
}

// On MySQL a statement that makes a table commits: ours is made elsewhere, and a failed attempt leaves the table and
// nothing else. Where it is there already, no publisher waits for another.
func TestInitializeInsideHandler(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		var attempts deliveries
		b.run(b.subscriber(), func(msg *message.Message) ([]*message.Message, error) {
			attempt := attempts.add(msg.UUID)
			if err := b.write(msg, "effect"); err != nil {
				return nil, err
			}
			for range 2 { // the second finds a table in which the first has written and not committed
				pub, err := wmsql.NewPublisher(t.Context(), b.db, wmsql.PublisherConfig{})
				if err != nil {
					return nil, err
				}
				if err := pub.InitializeTopics(b.topic + ".new"); err != nil {
					return nil, err
				}
				if err := pub.Publish(b.topic+".new", message.NewMessageWithContext(msg.Context(), "", nil)); err != nil {
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
		if effects, n := b.effects(), b.backlogOf(b.topic+".new"); len(effects["x"]) != 1 || n != 2 || attempts.get()["x"] != 2 {
			t.Errorf("effects %v, %d published, attempts %v", effects, n, attempts.get())
		}
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
		if !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("%v", err)
		}
		again.Ack()
		(<-messages).Ack()
		b.until("both are acknowledged", func() bool { return b.backlog(b.topic, "") == 0 })
		if err := b.pub.Publish(b.outs, message.NewMessageWithContext(again.Context(), "by itself", nil)); err != nil {
			t.Errorf("of a message that was acked: %v", err)
		}
		if n := b.backlogOf(b.outs); n != 1 {
			t.Errorf("%d published", n)
		}
	})
}
