package wmkafka

import (
	"context"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// Promise P3: a message that was acked when the grace of its session ended is acked, however late the process comes to
// look. A pause of the process ends both, and a select takes any.
func TestAckedAtTheEndOfTheGrace(t *testing.T) {
	for round := range 1000 {
		session, end := context.WithCancel(t.Context())
		s := subscriptionOf(t, SubscriberConfig{settleGrace: time.Nanosecond}, true)
		d := s.deliver(session, &sarama.ConsumerMessage{Topic: "orders"})
		end()
		d.msg.Ack()
		if how := d.settled(nil); how != acked {
			t.Fatalf("round %d: settled as %d", round, how)
		}
	}
}
