package columns_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/examples/nats/jetstream"
	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Promises P1 and P7: the durable consumer is deleted twice while messages flow. The consumer that is made in its place
// begins with the oldest message: everything comes again. By id: each good message took effect once, each bad one is a
// letter, none is lost. It runs before the parallel tests, which restart the server.
func TestNATSConsumerDeleted(t *testing.T) {
	const all, deletions = 120, 2
	b, s := natsBroker{services.NATS(t), wmnats.GobMarshaler{}}, newStory(t)
	for _, each := range []string{s.topic, s.topic + ".dlq", s.topic + ".invalid"} {
		b.createStream(t, each)
	}
	s.publish = func() message.Publisher { return b.publisher(t) }
	s.backlog = func() func(context.Context, string) (int, error) { return b.subscriber(t, "billing", b.url).Backlog }
	s.letters = func() map[string]int {
		counts := map[string]int{}
		b.admin(t, func(js nats.JetStreamContext) error {
			for seq := uint64(1); ; seq++ {
				raw, err := js.GetMsg(jetstream.Name(s.topic+".dlq"), seq)
				if err != nil {
					return nil // there are no more
				}
				counts[testkit.Must(b.marshaler.Unmarshal(&nats.Msg{Header: raw.Header, Data: raw.Data})).UUID]++
			}
		})
		return counts
	}
	s.run(b.subscriber(t, "billing", b.url), 0)
	ids := slices.Concat(several("good", all*9/10), several("bad", all/10))
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for i, id := range ids {
		s.send(id)
		if i%(all/deletions) == all/deletions/2 {
			testkit.Eventually(t, "the consumer is there, and deleted", func() bool {
				deleted := false
				b.admin(t, func(js nats.JetStreamContext) error {
					deleted = js.DeleteConsumer(jetstream.Name(s.topic), "billing") == nil
					return nil
				})
				return deleted
			})
		}
	}
	s.untilAll(ids)
}
