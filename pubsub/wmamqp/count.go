package wmamqp

import "github.com/ThreeDotsLabs/watermill/message"

// DeliveryCount returns how often a quorum queue delivered the message before and got it back, without the times that
// this process is known to have requeued it itself, by a nack or on a connection that was lost: it remembers 1000
// messages, each for an hour. Use it as Delivered of crashlimit.Config. On a classic queue,
// which does not count, it is 0. It returns false for a message that does not come from Subscriber.
//
// RabbitMQ counts every delivery that came back, and not only those that ended the process. What other processes gave
// back counts, and so do deployments. A process that is killed had up to SubscriberConfig.MaxPlacing messages of a
// queue open, and each is counted. So set Max, 20 by default for this count, higher than those that a message can have.
// Set the queue's own x-delivery-limit higher than Max, or from RabbitMQ 4 on to -1: otherwise RabbitMQ may drop the
// message before its letter is published.
func DeliveryCount(msg *message.Message) (int, bool) {
	d, ok := infoIn(msg.Context())
	if !d.redelivered { // on a first delivery the header can only be the producer's
		return 0, ok
	}
	return max(d.count-d.requeued, 0), ok
}
