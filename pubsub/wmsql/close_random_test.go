package wmsql_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// Close in the middle of a handler, at random moments: there is no half-done work, ever, and nothing is lost.
func TestCloseCampaign(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		random, rounds := testkit.Random(t), testkit.Campaign(t, 40)
		var ids []string
		var begun atomic.Int32
		var seen deliveries
		for round := range rounds {
			if b.backlog(b.topic, "") < 50 {
				more := batchOf(fmt.Sprint("m-", round), 100)
				b.publishAtOnce(more...)
				ids = append(ids, more...)
			}
			grace := time.Duration(random.IntN(6)) * time.Millisecond
			pause := time.Duration(random.IntN(8)) * time.Millisecond
			sub := b.subscriber(func(c *wmsql.SubscriberConfig) { *wmsql.SettleGrace(c) = time.Millisecond + grace })
			before := begun.Load()
			stop := b.run(sub, func(msg *message.Message) ([]*message.Message, error) {
				begun.Add(1)
				seen.add(msg.UUID)
				if err := b.write(msg, "one"); err != nil {
					return nil, err
				}
				if time.Sleep(pause); round%40 == 0 {
					<-msg.Context().Done()            // Close has begun
					time.Sleep(50 * time.Millisecond) // beyond the grace
				}
				return []*message.Message{message.NewMessage("", []byte(msg.UUID))}, b.write(msg, "two")
			})
			if round%4 == 0 {
				b.until("a handler has begun", func() bool { return begun.Load() > before }) // all may be handled by now
			} else {
				time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
			}
			testkit.Is(t, sub.Close(), nil)
			stop()
		}
		b.run(b.subscriber(), b.whole)
		b.account(ids)
		testkit.Check(t, len(strings.Fields(seen.String())) > len(seen.get()),
			"no close was in the middle of something")
	})
}
