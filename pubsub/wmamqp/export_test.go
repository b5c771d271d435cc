package wmamqp

import (
	"maps"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"
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
func NackBackoff(c *SubscriberConfig) *time.Duration    { return &c.nackBackoff }
func MaxNackBackoff(c *SubscriberConfig) *time.Duration { return &c.maxNackBackoff }
func ConsumersLook(c *SubscriberConfig) *time.Duration  { return &c.consumersLook }
func MaxPlacingBytes(c *SubscriberConfig) *int          { return &c.maxPlacingBytes }
func StandsBy(c *SubscriberConfig) *time.Duration       { return &c.standsBy }
func Channels(c *PublisherConfig) *int                  { return &c.channels }

// Declare declares the queue of topic as Subscribe does, and consumes nothing.
func (s *Subscriber) Declare(topic string) error {
	_, err := s.declare(topic, s.config.AMQP.Queue.GenerateName(topic))
	return err
}

// QuorumQueue returns the arguments and the type of a quorum queue.
func QuorumQueue(arguments amqp091.Table) amqp091.Table {
	quorum := amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum}
	maps.Copy(quorum, arguments)
	return quorum
}
