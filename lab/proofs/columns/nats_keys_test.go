package columns_test

import (
	"database/sql"
	"errors"
	"maps"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/middleware/stages/delay"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
)

// Promises P2, P4, decision 5: NATS has headers whose names and values its protocol bounds, and its client refuses a
// name such as "order id". Such metadata come through letters and stages, after as few handler calls as any other, and
// the rest of the metadata stays readable in the letter.
func TestNATSKeysOfOthers(t *testing.T) {
	b := natsBroker{services.NATS(t), &wmnats.NATSMarshaler{}}
	metadata := message.Metadata{"tenant": "acme", "order id": "7", "schlüssel": "wört", "a:b": "c", "note": "two\nlines", "": "empty"}
	scheme := naming.Scheme{Style: naming.NATS}
	for name, row := range map[string]struct {
		failure error
		calls   int32
		change  func(*testing.T, *spillway.Config)
	}{
		"letter": {classify.Permanent(errors.New("never")), 1, func(*testing.T, *spillway.Config) {}},
		"stage":  {errors.New("not yet"), 2, func(*testing.T, *spillway.Config) {}},
		"stage in a delay store": {errors.New("not yet"), 2, func(t *testing.T, c *spillway.Config) {
			db := testkit.Must(sql.Open("sqlite", filepath.Join(t.TempDir(), "delayed.db")))
			t.Cleanup(func() { _ = db.Close() })
			c.Stages.Store = testkit.Must(delay.NewStore(t.Context(), db, "shop"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			topic := "keys-" + watermill.NewShortUUID()
			live := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 1}, nil)
			t.Cleanup(func() { _ = live.Close() })
			publisher := func() message.Publisher {
				pub := b.publisher(t)
				t.Cleanup(func() { _ = pub.Close() })
				return pub
			}
			config := spillway.Config{Publisher: publisher()}
			config.Naming = scheme
			config.Stages = &stages.Config{Stages: stages.Delays(50 * time.Millisecond), Publisher: publisher(),
				Subscriber: func(_, group string) (message.Subscriber, error) { return b.subscriber(t, group, b.url), nil }}
			row.change(t, &config)
			ch := testkit.Must(spillway.New(t.Context(), config))
			var calls atomic.Int32
			arrived := make(chan message.Metadata, 10)
			stop := testkit.RunRouter(t, watermill.NopLogger{}, func(router *message.Router) {
				ch.Attach(router)
				_, err := ch.Stages().AddConsumerHandler(router, "billing", topic, live, func(msg *message.Message) error {
					if calls.Add(1) == 1 {
						return row.failure
					}
					arrived <- maps.Clone(msg.Metadata)
					return nil
				})
				testkit.NoError(t, err)
			})
			defer stop()
			msg := message.NewMessage("1", nil)
			msg.Metadata = maps.Clone(metadata)
			testkit.NoError(t, live.Publish(topic, msg))
			var got message.Metadata
			if row.calls == 1 {
				dlq := scheme.DeadLetterTopic(naming.Source{Topic: topic, Handler: "billing", Class: classify.ClassPermanent})
				letters := testkit.Must(b.subscriber(t, "reader", b.url).Subscribe(t.Context(), dlq))
				select {
				case raw := <-letters:
					raw.Ack()
					testkit.Equal(t, "tenant, readable", raw.Metadata["tenant"], "acme")
					got = poison.Read(raw).Original.Metadata
				case <-time.After(testkit.Patience):
					t.Fatalf("no letter after %d calls", calls.Load())
				}
			} else {
				select {
				case got = <-arrived:
				case <-time.After(testkit.Patience):
					t.Fatalf("nothing out of the stage after %d calls", calls.Load())
				}
			}
			for key, value := range metadata {
				if got[key] != value {
					t.Errorf("%q is %q, want %q", key, got[key], value)
				}
			}
			testkit.Equal(t, "handler calls", calls.Load(), row.calls)
		})
	}
}
