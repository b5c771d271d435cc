package wmsql

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// Promise P3: a message that was acked when its grace ended is acked, however late the process comes to look.
func TestAckedAtTheEndOfTheGrace(t *testing.T) {
	s := &subscription{of: &Subscriber{config: SubscriberConfig{settleGrace: time.Nanosecond}}, logger: watermill.NopLogger{}}
	ended, end := context.WithCancel(t.Context())
	end()
	for round := range 1000 {
		msg := message.NewMessage("m", nil)
		msg.Ack()
		if how := s.settled(ended, msg, nil); how != acked {
			t.Fatalf("round %d: settled as %d", round, how)
		}
	}
}
