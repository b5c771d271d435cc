package wmamqp

import "github.com/ThreeDotsLabs/watermill/message"

// DeliveryCount is a delivery.LimitConfig.Delivered: how often a quorum queue delivered the message before and had it back.
// It knows nothing of messages that do not come from Subscriber, and on a classic queue, which does not count, it is 0.
// RabbitMQ counts every delivery that came back, by a nack or with a lost connection too, not only those that ended the
// process: LimitConfig.Max, 20 by default for this count, must be more than a message can have of those, and the
// queue's own x-delivery-limit higher than Max, or none (-1): else RabbitMQ may drop the message before its letter has a place.
func DeliveryCount(msg *message.Message) (int, bool) {
	d, ok := DeliveryFromContext(msg.Context())
	if !d.Redelivered { // on a first delivery the header can only be the producer's
		return 0, ok
	}
	return d.Count, ok
}
