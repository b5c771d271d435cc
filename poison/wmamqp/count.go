package wmamqp

import "github.com/ThreeDotsLabs/watermill/message"

// DeliveryCount is a delivery.LimitConfig.Delivered: how often a quorum queue delivered the message before and had it back.
// It knows nothing of messages that do not come from Subscriber, and on a classic queue, which does not count, it is 0.
// RabbitMQ counts every delivery that came back, by a nack or with a lost connection too, not only those that ended the
// process: LimitConfig.Max must be more than a message can have of those.
func DeliveryCount(msg *message.Message) (int, bool) {
	d, ok := DeliveryFromContext(msg.Context())
	if !d.Redelivered { // on a first delivery the header can only be the producer's
		return 0, ok
	}
	return d.Count, ok
}
