package wmamqp

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Counted is what the broker and this process counted of a message.
type Counted struct {
	Redelivered     bool
	Count, Requeued int
}

// Counts returns what was counted of a message of Subscriber.
func Counts(msg *message.Message) (Counted, bool) {
	d, ok := infoIn(msg.Context())
	return Counted{d.redelivered, d.count, d.requeued}, ok
}

// What tests change of the constants of a subscriber or publisher.

func SettleGrace(c *SubscriberConfig) *time.Duration    { return &c.settleGrace }
func MaxNackBackoff(c *SubscriberConfig) *time.Duration { return &c.maxNackBackoff }
func MaxPlacingBytes(c *SubscriberConfig) *int          { return &c.maxPlacingBytes }
func Channels(c *PublisherConfig) *int                  { return &c.channels }
