package wmkafka

import (
	"sync/atomic"
	"testing"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
	"github.com/watermill-spillway/spillway/settings"
)

// Feature R13: an instance that keeps the order of keys and one that does not are never in a group at the same time. The
// second one waits for the first to leave, whichever it is, and then has all.
func TestMembersApart(t *testing.T) {
	t.Parallel()
	for _, orderedFirst := range []bool{false, true} {
		c, db := newCluster(t), databases.Postgres.New(t)
		log := &testkit.Log{}
		begin := func(ordered bool, handled *atomic.Int64) (stop func()) {
			config := spillway.Config{Service: "shop", DB: db, Logger: watermill.NopLogger{}}
			if ordered {
				config.Ordered = &spillway.OrderedConfig{}
			}
			sub := c.subscriber(SubscriberConfig{InFlight: 8, Shared: settings.Shared{Logger: log}})
			return c.run(sub, c.channel(config).Attach, func(*message.Message) error { handled.Add(1); return nil })
		}
		var first, second atomic.Int64
		stopFirst := begin(orderedFirst, &first)
		const n, keys = 40, 8
		c.produce(keyed(n, keys)...)
		c.eventually("the first handles all", func() bool { return first.Load() == n })
		stopSecond := begin(!orderedFirst, &second)
		c.eventually("the group does not admit it", func() bool { return log.Is(sarama.ErrInconsistentGroupProtocol) })
		testkit.Equal(t, "members", c.members(), 1)
		stopFirst()
		others := keyed(2*n, keys) // of which the receiver knows the first half
		c.produce(others...)
		c.eventually("the second has its turn", func() bool { return second.Load() == n })
		stopSecond()
	}
}
