package wmsql_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// refusing writes, and says that it did not.
type refusing struct {
	message.Publisher
	refuse func(id string) bool
}

// InitializeTopics makes the tables, as of the publisher behind it.
func (p refusing) InitializeTopics(topics ...string) error {
	return p.Publisher.(*wmsql.Publisher).InitializeTopics(topics...)
}

var errRefused = errors.New("refused")

func (p refusing) Publish(topic string, messages ...*message.Message) error {
	err := p.Publisher.Publish(topic, messages...)
	for _, msg := range messages {
		if p.refuse(msg.UUID) {
			return errRefused
		}
	}
	return err
}

// A nacked message leaves nothing. What came before it commits at once; it comes again, later every time.
func TestBatchNacked(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		const backoff = 100 * time.Millisecond
		var mu sync.Mutex
		var at []time.Time
		ids := []string{"a", "b", "c"}
		b.publish(ids...)
		b.run(b.subscriber(oneBatch, func(c *wmsql.SubscriberConfig) { *wmsql.NackBackoff(c) = backoff }), func(msg *message.Message) ([]*message.Message, error) {
			outs, err := b.whole(msg)
			if msg.UUID != "b" || err != nil {
				return outs, err
			}
			mu.Lock()
			defer mu.Unlock()
			if at = append(at, time.Now()); len(at) > 1 { // it waited; what came before it did not
				effects := b.effects()
				testkit.Check(t, len(effects) == 1 && len(effects["a"]) == 2, "delivery %d: effects %v", len(at),
					effects)
			}
			if len(at) == 3 {
				return outs, nil
			}
			out := message.NewMessageWithContext(msg.Context(), "", []byte("b"))
			return nil, errors.Join(errors.New("failed"), b.pub.Publish(b.outs, out))
		}, once, func(c *spillway.Config) {
			c.Publisher = refusing{c.Publisher, func(id string) bool { return id == "b" }}
		})
		b.account(ids)
		for i, want := 1, backoff; i < len(at); i, want = i+1, 2*want {
			testkit.Check(t, at[i].Sub(at[i-1]) >= want, "delivery %d came after %s", i+1, at[i].Sub(at[i-1]))
		}
	})
}

// A statement that failed behind a savepoint of the handler's own has been undone by the handler: the rest counts.
func TestOwnSavepoint(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.run(b.subscriber(), func(msg *message.Message) ([]*message.Message, error) {
			tx := txOf(msg.Context())
			_, err := tx.Exec(`SAVEPOINT mine`)
			err = errors.Join(err, b.write(msg, "one"), b.write(msg, "two"))
			testkit.Check(t, testkit.Err(tx.Exec(`INSERT INTO nowhere VALUES (1)`)) != nil, "there is a table nowhere")
			if _, also := tx.Exec(`ROLLBACK TO SAVEPOINT mine`); err != nil || also != nil {
				return nil, errors.Join(err, also)
			}
			return b.whole(msg)
		})
		b.publish("a")
		b.account([]string{"a"})
	})
}

// Feature R8: what was acked commits within the time of a batch, also if the consumer does not take the next message.
func TestBatchEndsUntaken(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.publish("a", "b")
		sub := b.subscriber(func(c *wmsql.SubscriberConfig) { c.AckDeadline = time.Hour })
		messages := b.messages(sub)
		b.receive(messages, "a").Ack()
		b.until("the position is behind what was acked", func() bool { return testkit.Must(sub.Backlog(t.Context(), b.topic)) == 1 })
		b.receive(messages, "b").Ack()
		b.until("the position is at the end", func() bool { return testkit.Must(sub.Backlog(t.Context(), b.topic)) == 0 })
	})
}
