// Package wmamqp is all that is particular to RabbitMQ: a marshaler that reads every message, a publisher that knows
// where its messages went, and a subscriber whose messages know when they are gone. It stands on watermill-amqp and may
// be mixed with it.
//
//	dead, err := wmamqp.NewPublisher(uri, wmamqp.PublisherConfig{})
//	sub, err := wmamqp.NewSubscriber(uri, wmamqp.SubscriberConfig{})
//	queue, err := poison.NewQueue(dead, poison.QueueConfig{Origin: wmamqp.Origin})
//
// # Marshaler
//
// Watermill-amqp's marshaler takes headers that are strings. Any other (a number, the x-death of a dead-letter exchange,
// the x-delivery-count that a quorum queue adds after one nack) is an error, with which the message is requeued at once,
// for ever, and what is behind it never delivered. Marshaler makes text of every header and carries its type, and the
// message's properties, in metadata KeyHeaders; on the way back, into a dead-letter queue and out of it, both are what
// they were. KeyHeaders that a producer on another broker wrote is not believed in what a handler produces. An application's own marshaler goes into Inner: what it cannot read becomes a dead letter.
//
// The headers CC and BCC, which make RabbitMQ route a message to more queues, are written under another name, so that a
// letter does not arrive where its message did. Neither an expiration is written back, since the message's time has
// passed and a letter must not expire, nor a user id, since the broker closes the channel on another user's. All headers
// travel in one frame, 128 KiB by default: Publisher refuses what does not fit before the broker closes the connection,
// with poison.ErrTooLarge, and poison.Queue then cuts the letter. A reply-to of amq.rabbitmq.reply-to, for which the broker
// would close the channel, becomes metadata x-amqp-kept-reply-to. Metadata whose name has more than 255 bytes travels in one
// header, x-spillway-long-names. What else the broker or the client refuses for what it carries is poison.ErrRefused.
//
// # Publisher
//
// Watermill-amqp's publisher confirms nothing unless told to, and when told to still says nil for a queue that does not
// exist. Publisher publishes with mandatory and confirms on a few channels, one message at a time each, and returns nil
// when the message is in a queue. It declares dead-letter queues at start-up, durable, without expiry or bounds, quorum
// queues unless QueueType says otherwise. A queue that is there with other arguments is taken as it is, but refused if it
// confirms letters and loses them later: by x-message-ttl, x-expires, x-max-length and their like, or because it is not
// durable. PublisherConfig.AllowLossyTopics accepts such queues. While the connection is gone Publish fails at once, and
// watermill-amqp dials again.
//
// # Subscriber
//
// The context of a watermill-amqp message lives on when its connection is lost, while somebody else has the message
// already; and Close gives a message back while its handler runs. Subscriber wraps it: the context ends when the channel
// or connection is lost, at Close, and with the context of Subscribe; the handler then has SettleGrace to return. At
// Close, what it acks in that time is acked at the broker; the rest is given back once, by closing its channel. A message
// given back before that is kept for a while first, longer each time in a row, because RabbitMQ would deliver it again at
// once. When its queue is deleted it declares it again.
// The x-delivery-count of a quorum queue is in DeliveryFromContext, not in metadata: a message that is delivered again
// is the same, and a letter that arrives twice is one in the dead-letter store.
//
// # Log
//
// Watermill-amqp logs its own orderly end as errors. On a connection of our own these lines are at Debug, from the end of a
// queue's subscriptions or from Close on. A connection that is lost is an Error, as are the tries to dial it again. A
// connection that was given keeps the logger that it was made with.
//
// # Retry stages
//
// One message of a queue at a time is little for a stage, where many are due at once. InFlight hands out several, which a
// downstream must bear that just came back, and the next ones are not held up by one whose jitter is longer:
//
//	Subscriber: func(topic, _ string) (message.Subscriber, error) {
//		return wmamqp.NewSubscriber(uri, wmamqp.SubscriberConfig{InFlight: 16})
//	},
//
// Each has a channel of its own, of which a connection has 2047 unless the broker allows less.
//
// # RabbitMQ 4, and time
//
// From RabbitMQ 4 on a quorum queue drops a message, or sends it to its dead-letter exchange, when it was given back 20
// times. The dead-letter queues that Publisher declares there have x-delivery-limit -1. For a source queue set the same,
// as an argument or a policy (which is also how to mend a queue that exists), or keep enough fallbacks that nothing is
// given back so often. RabbitMQ 3.10 has no limit by default and refuses -1.
//
// A message that is not settled within the broker's consumer_timeout, 30 minutes by default, costs the channel: its
// context ends and it is delivered again. Messages that were prefetched wait for those before them, so their time
// counts from the fetch; the default is to fetch one.
//
// # Ids
//
// The id of a message that Watermill did not write is its message id property. For an idempotent receiver, whose default
// key that is, one without is invalid; give it another key, idempotency.ByMetadata or ByPayloadHash.
//
// # What is not promised
//
// Letters in a queue to which a policy gives a message-ttl, expires, max-length or delivery-limit: the broker shows
// policies to no AMQP client. Look with
//
//	rabbitmqctl list_queues name policy operator_policy effective_policy_definition
//
// and keep such policies away from the names of dead-letter queues. The arguments of a queue that this user may not
// declare cannot be seen either, nor all of those of a queue whose name has more than about 80 bytes; Logger gets a line.
// Order: a message given back goes to its old place where it can, but another consumer may have the next one already; with
// InFlight there is none.
// Once only: a confirm or an ack can be lost with the connection, and then the message is there twice, with the same id.
// A connection whose peer vanished without a word is lost when the client notices: after two to three heartbeats, 10 s
// each by default; before that no context ends. A handler that does not obey its context runs on after SettleGrace,
// beside the next delivery. A header type that amqp091 cannot read (an unsigned 16 or 32-bit number, which few clients
// write) costs the connection before anything of ours sees it. A Delivery that carries x-death is believed by
// dead-letter exchanges before RabbitMQ 4, which may then see a cycle. Numbers in tables that lie deeper than 256 levels
// lose their types. Watermill-amqp has a data race of its own when it dials again.
// A Close that returned after 4 s leaves what it cut off to end by itself: a handler that does not obey its context, or a
// dial that nothing answers. A connection that was given is not cut off, and its channels end with it.
package wmamqp
