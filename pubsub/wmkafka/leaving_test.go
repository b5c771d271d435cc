package wmkafka

import (
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Promise P3: when all brokers come back, no rebalance waits for the member that this process was before.
func TestNoMemberIsLeftBehind(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	dialer := &faulty{}
	messages := c.subscribe(c.subscriber(SubscriberConfig{Sarama: func(config *sarama.Config) {
		dialer.into(config)
		group := &config.Consumer.Group
		group.Session.Timeout, group.Rebalance.Timeout, config.Net.ReadTimeout = 4*time.Minute, 4*time.Minute, 5*time.Minute
	}}))
	c.produce(numbered(1)...)
	c.next(messages).Ack()
	dialer.set(false, true)
	c.eventually("the client gives up", func() bool { return dialer.refusals() > 20 })
	dialer.set(false, false)
	c.produce(numbered(1)...)
	c.next(messages).Ack()
	testkit.Equal(t, "members of the group", c.members(), 1)
}
