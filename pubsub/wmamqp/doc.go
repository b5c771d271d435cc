// Package wmamqp is Spillway's RabbitMQ adapter. Its marshaler reads every message. Its publisher confirms that its
// messages are in a queue. The contexts of its subscriber's messages end with their channel. The adapter is built on
// watermill-amqp, and its parts can be combined with the parts there.
//
//	dead, err := wmamqp.NewPublisher(uri, wmamqp.PublisherConfig{})
//	sub, err := wmamqp.NewSubscriber(uri, wmamqp.SubscriberConfig{})
//	queue, err := poison.NewQueue(dead, poison.QueueConfig{Origin: wmamqp.Origin})
//
// # The marshaler
//
// Watermill-amqp's marshaler reads only headers that are strings. Any other header is an error, such as a number, or
// the x-death of a dead-letter exchange. So is the x-delivery-count that a quorum queue adds after one nack. The
// message is then requeued at once, without end, and no message behind it is delivered. Marshaler makes text of every
// header. It keeps the headers' types and the message's properties in metadata KeyHeaders, and restores both in a
// dead-letter queue and on the way back. It does not trust a KeyHeaders that a producer wrote. An application's own
// marshaler goes into Marshaler.Inner: a message that Inner cannot read is dead-lettered.
//
// Some values are not written back as they were:
//
//   - CC and BCC have another name, because RabbitMQ would route the letter to more queues.
//   - An expiration is dropped, because a letter must not expire. So is a user id, because the broker closes the
//     channel on the id of another user.
//   - A reply-to of amq.rabbitmq.reply-to, for which the broker would close the channel, becomes metadata
//     x-amqp-kept-reply-to.
//   - Metadata whose name has more than 255 bytes travels in one header, x-spillway-long-names.
//
// All headers travel in one frame, 128 KiB by default. Publisher refuses a message that does not fit with
// classify.ErrTooLarge, before the broker would close the connection, and poison.Queue then cuts the letter. Any other
// message that the broker or the client refuses for its content is classify.ErrRefused.
//
// # The publisher
//
// Watermill-amqp's publisher waits for no confirm by default, and with confirms it still returns nil for a queue that
// does not exist. Publisher publishes with mandatory and confirms, and returns nil when the message is in a queue. It
// opens up to 64 channels, each for one message at a time. While the connection is lost, Publish fails at once, and the
// broker is dialled again.
//
// At start-up, with a poison.Queue, it declares dead-letter queues: durable, without expiry or bounds, and quorum
// queues unless AMQP.Queue.Arguments has another x-queue-type. An existing queue is used as it is, unless it loses
// letters that it confirmed. A queue loses them if it is not durable, or by x-message-ttl, x-expires, x-max-length and
// the like. That is an error, unless PublisherConfig.AllowLossyTopics is set.
//
// # The subscriber
//
// The context of a watermill-amqp message does not end when its connection is lost and the broker redelivers the
// message elsewhere. At Close a message is requeued while its handler runs. Subscriber declares queues by
// watermill-amqp's topology, and connects and consumes by itself:
//
//   - At Close, and when the context of Subscribe ends, the consumer is cancelled, and running handlers may finish, for
//     5 s or spillway.Config.DrainTimeout. Their acks reach the broker before the channel is closed. Messages that were
//     fetched and that no handler has are requeued with it.
//   - The context of a message ends after that time, and at once when its channel or connection is lost.
//   - The handler then has one second to return. At Close, an ack in that time reaches the broker. All other messages
//     are requeued once, by closing the channel.
//   - A nacked message is requeued after 100 ms, because RabbitMQ redelivers it at once. The wait doubles with each
//     nack in a row, up to 5 s.
//   - While something that a handler needs is unavailable, a message is held for at most MaxHold, 15 minutes, and then
//     given
//     back. So the broker does not close the channel. If more was fetched, all of it goes back once, and one message at
//     a time is fetched.
//   - If its queue is deleted, its channel lost, or its consumer cancelled, the subscriber declares the queue again and
//     goes on.
//   - What a queue adds to a delivery, as x-delivery-count, is read by DeliveryCount and not in metadata. So a
//     redelivered
//     message is the same message, and a letter that arrives twice is one letter in the dead-letter store.
//   - A stream is refused: no message returns to it.
//
// # A failed message holds up no other
//
// When a handler has failed, its message is published to a retry stage or as a dead letter. The next message is
// delivered meanwhile, in order. The failed one stays unacked until the publisher confirmed it:
//
//   - MaxPlacing and 16 MiB bound the messages of a queue that are being published. At the bound the
//     subscriber waits for a confirm.
//   - While they take the whole prefetch, the subscriber asks for each next message with basic.get. A larger prefetch
//     would hold healthy messages that another instance could handle. Without the question, the default prefetch of 1
//     leaves 0.64 and 0.32 of the failure-free rate while 1 and 10 % fail, with it 1.0 and 0.65. A quorum queue with a
//     single active consumer refuses it, and the prefetch is the bound.
//   - A message that every publisher refused, or that was requeued, is back in the queue after the usual wait.
//   - At Close the publishes have the time of handlers to be confirmed, and one second when the channel is lost.
//     Messages that are not confirmed then come again.
//   - After a crash all of them come again, and a quorum queue counts each of them: see DeliveryCount.
//
// MaxPlacing -1 switches this off, and so do InFlight above 1 and Consume.Exclusive.
//
// # Log
//
// A lost connection is an Error. The first failed attempt to dial again is an Info line with the cause, and further
// ones are logged at Debug, until the broker answers. If consuming cannot begin again, that is an Error once, and an
// Info line when it does.
//
// # Retry stages
//
// A stage has many messages that are due at once. InFlight delivers several at a time. A downstream that has just
// recovered must bear them. A message with a longer jitter then does not hold up those behind it:
//
//	Subscriber: func(topic, _ string) (message.Subscriber, error) {
//		return wmamqp.NewSubscriber(uri, wmamqp.SubscriberConfig{InFlight: 16})
//	},
//
// Each message in flight needs a channel. A connection has 2047 channels unless the broker allows less.
//
// # Many keys at a time
//
// With Key, InFlight messages of a queue with a single active consumer run at the same time, and never two of one key
// (in_lanes.go). One channel fetches them, and each one fetched is in a lane of package lanes until it is acked.
//
//   - None is requeued alone, which would break the order. A nacked one is delivered again after a wait.
//   - At the end the consumer is not cancelled: another one would be active while handlers still run. The channel is
//     closed once they have ended, and what is not acked goes back together.
//   - A message that waited in its lane for MaxHold ends the channel before its consumer_timeout would. None begins
//     then, and those that run have half of MaxHold to end.
//   - With spillway.Config.Ordered, what is parked is looked at with the first message of a channel, and drained in the
//     same lanes. Until then the consumer stands by: package sequence says why it may drain.
//
// # RabbitMQ 4, and time
//
// From RabbitMQ 4 on, a quorum queue drops a message, or sends it to its dead-letter exchange, after 20 redeliveries.
// Before RabbitMQ 4.3 each nack counts, and Subscriber does not let it come so far: it publishes a message that would
// be dropped to the end of its queue, and acks it when that is confirmed. If this user may not write to the default
// exchange, the message is held. What is lost with a process or a connection counts on all versions. Dead-letter queues
// that Publisher declares there have x-delivery-limit -1. Set the same for a source queue, as an argument or a policy;
// a policy also changes an existing queue. RabbitMQ 3.10 has no limit by default. It accepts -1, and drops a message
// when it is requeued for the first time: so before RabbitMQ 4, Subscriber and Publisher refuse such an argument, and
// queues that have it as far as the broker shows it. Have no such policy there either.
//
// A message that is not settled within the broker's consumer_timeout, 30 minutes by default, closes the channel, or
// from RabbitMQ 4.3 on cancels the consumer of a quorum queue: its context ends and it is redelivered. Prefetched
// messages wait for those before them, and their time counts from the fetch. The default prefetch is 1: a message that
// the subscriber asks for is delivered at once.
//
// # Ids
//
// The id of a message that Watermill did not write is its message id property. The id is the default key of an
// idempotent receiver: a message without one is invalid. Configure another key, idempotency.ByMetadata or
// idempotency.ByPayloadHash.
//
// # What is not promised
//
//   - Letters in a queue to which a policy gives a message-ttl, expires, max-length or delivery-limit: the broker shows
//     policies to no AMQP client. Look with rabbitmqctl list_queues name policy operator_policy, and with rabbitmqctl
//     list_policies. Keep such policies away from the names of dead-letter queues. The arguments of a queue that this
//     user may not declare are not visible either. Nor are all arguments of a queue with a name of more than about 80
//     bytes. Logger gets a line then.
//   - Order. A requeued message goes to its old place if it can, but another consumer may have the next message
//     already. Letters of messages that failed at about the same time can change places; MaxPlacing -1 keeps their
//     order. With InFlight there is no order, unless Key gives one.
//   - One copy. A confirm or an ack can be lost with the connection. Then the message is there twice, with the same id.
//   - Knowing at once. The loss of a peer that vanished is noticed after two to three heartbeats, 10 s each by default.
//     Before that no context ends.
//   - Exclusive handling. A handler that ignores its context runs on after that second, beside the next delivery.
//   - Every header type. One that amqp091 cannot read (an unsigned 16 or 32-bit number, which few clients write) costs
//     the connection before this package sees it. Numbers in tables deeper than 256 levels lose their types.
//   - Cycles. Before RabbitMQ 4, dead-letter exchanges trust an x-death in a message and may see a cycle.
//   - The end of everything at Close, which returns within 4 s. A handler that ignores its context, or a dial without
//     an answer, ends by itself later.
package wmamqp
