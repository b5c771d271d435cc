package wmkafka

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
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
	c.eventually("the client gives up", func() bool {
		dialer.lock.Lock()
		defer dialer.lock.Unlock()
		return dialer.refused > 20
	})
	dialer.set(false, false)
	c.produce(numbered(1)...)
	c.next(messages).Ack()
	if n := c.members(); n != 1 {
		t.Errorf("the group has %d members", n)
	}
}
