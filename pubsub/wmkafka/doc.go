// Package wmkafka is what Spillway knows about Kafka: a subscriber whose messages end with their group session, a
// marshaler that loses nothing, a publisher that waits for all replicas and creates topics for dead letters as they should
// be. It stands on watermill-kafka, and its parts can be mixed with the ones there.
//
//	sub, err := wmkafka.NewSubscriber(brokers, "billing", wmkafka.SubscriberConfig{})
//	dead, err := wmkafka.NewPublisher(brokers, wmkafka.PublisherConfig{})
//	dlc, err := spillway.New(spillway.Config{Publisher: dead, Queue: poison.QueueConfig{Origin: wmkafka.Origin}})
//
// # The subscriber
//
// One message is in flight per partition. Its context ends with the group session: at a rebalance, when the broker no
// longer counts this process as a member, at Close, at the end of the subscription. Then the handler has SettleGrace, 1 s,
// to ack; after that the partition is given away, and what the handler says is neither committed nor delivered again here.
// So a handler that waits holds up no rebalance, and going away is no failure: package poison publishes and counts nothing.
// A nacked message comes again after a wait that doubles, from 100 ms to 5 s, and never after its session. With InFlight
// several messages of a partition are, without order; an offset is committed when everything in front of it is acked.
//
// What the unmarshaler cannot read becomes a message with the record's bytes that poison.Queue sets aside, with reason
// unmarshal_error; watermill-kafka's subscriber would stand still. A handler of such a subscriber needs a queue around it.
//
// # The marshaler
//
// A record that is set aside and brought back has the key, the headers, the id and the value that it had, null told from
// empty, whatever bytes they are. What metadata cannot tell travels as KeyRecord. With QueueConfig.Origin the letter also
// says in metadata which key it had, so that letters kept elsewhere than on Kafka come back with it. Headers are written
// in the order of their names; several of one name keep their order.
//
// A key in metadata is believed only of what Spillway itself publishes, and of letters in topics for letters, which
// Marshaler.LetterTopic knows. A handler that passes its input's metadata on gives its output no key by that.
//
// # The publisher
//
// Publish returns when all replicas in sync have the record, or with an error within 30 s. One refused for its size says so
// (poison.ErrTooLarge), and only that one is refused, not those that travelled with it. InitializeTopicsFor creates a
// dead-letter topic with the source's partitions and replicas, no expiry, no compaction and room for its largest message
// with a letter's metadata. An existing topic that would lose letters, or refuse the largest, is an error, at the router's
// start with a poison.Queue: retention.ms, retention.bytes and cleanup.policy must keep all, and max.message.bytes must be the
// source's and 64 KiB. PublisherConfig.AllowLossyTopics uses it as it is. So it is for the topics of retry stages.
//
// What a topic took can be set aside, brought back and staged, however it came. A message that is compressed, or has many
// headers, can be larger for this client than its topic allows: the publisher then compresses it as well as it can, and the
// broker judges. No letter has more room than a request: socket.request.max.bytes, or 100 MiB, less 16 KiB.
//
// # Retry stages
//
// Stages and their live handler publish at the same time, so their publisher wants ProducerPerTopic, and each stage a
// consumer group of its own, so that one that waits holds up no rebalance of the live topic:
//
//	waiting, err := wmkafka.NewPublisher(brokers, wmkafka.PublisherConfig{ProducerPerTopic: true})
//	stages.Config{
//		Publisher: waiting,
//		Subscriber: func(topic, group string) (message.Subscriber, error) {
//			return wmkafka.NewSubscriber(brokers, group, wmkafka.SubscriberConfig{InFlight: 16})
//		},
//	}
//
// InFlight lets a stage handle so many messages that are due at once, which a downstream must bear that just came back. Nor
// are the next 15 then held up by one whose jitter is longer. SaramaStageConfig spares the broker requests where all stages
// are half a second or longer.
//
// With a delay store, whose relay publishes many in one call, PublisherConfig.InFlight sends them in few requests: 200 is the relay's batch.
// ListWaiting tells at start-up in which stage topics messages wait that no group has acked. A failure costs the live
// handler one confirmed publish, and the broker one for each stage: where they share few cores, that bounds live traffic
// while much fails. Where the live topic's order means nothing, InFlight there lets the others go on during the publish.
//
// # Ids
//
// Records that Watermill did not write have no id of Watermill's. For an idempotent receiver, whose default key that is,
// they are invalid; give it another one, idempotency.ByMetadata or ByPayloadHash. ByCoordinates recognises a record that is
// delivered again, and nothing else: a message that is redriven twice is applied twice.
//
// # What is not promised
//
// One letter per message: offsets are committed once a second and when a session ends in order. A process that is killed
// repeats a second or a few of acked messages, among them some that were set aside: then there is a second letter with
// the same id. So there is when a session is lost while a letter is being published. With InFlight, what was acked behind a
// message that was not is repeated at each end of a session, also in order.
//
// Knowing at once: a connection that falls silent is noticed within 20 to 30 s, a broker gives a member's partitions away
// after 10 s. In between another instance may handle the same message; the idempotent receiver makes the effect one.
//
// Two at a time: a handler that does not heed its context may still run when this same process gets the partition, and the
// message, again.
//
// Order: with InFlight there is none. Without, a letter has the key of its message, so letters of one key stay in one
// partition and in order. A redriven message goes to the partition that the publisher's partitioner chooses for the key.
// That is the one where the key's other messages are only if their producers choose alike: sarama hashes with FNV-1a, Java
// and librdkafka with murmur2. A redriven message comes behind what was published meanwhile. A message without key goes to
// any partition.
//
// The timestamp: a letter and a redriven record have the time of their own publishing; the first one is in metadata, as
// poison.KeyOriginalTimestamp.
//
// Transactions: messages of aborted ones are not delivered, but a letter, the outputs of a handler and its offset are not
// written in one, and a transactional producer is refused. A transaction left open holds its partition up until it times
// out.
//
// Limits of what is kept: repeated or null headers beyond 32 KiB collapse as with watermill-kafka, a key beyond 16 KiB
// stays behind where a letter is brought back from metadata alone, an id that is an empty header becomes one that is absent.
package wmkafka
