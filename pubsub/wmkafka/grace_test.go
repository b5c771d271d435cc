package wmkafka

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// Promise P3: a message that was acked when the grace of its session ended is acked, however late the process comes to
// look. A pause of the process ends both, and a select takes any.
func TestAckedAtTheEndOfTheGrace(t *testing.T) {
	for round := range 1000 {
		g := newGroup(t, 0)
		s := subscriptionOf(t, SubscriberConfig{settleGrace: time.Nanosecond}, true)
		s.begin(g)
		d := s.deliver(s.tenure.work, &sarama.ConsumerMessage{Topic: "orders"})
		g.end()
		d.msg.Ack()
		if how := d.settled(d.of.Done()); how != acked {
			t.Fatalf("round %d: settled as %d", round, how)
		}
	}
}
