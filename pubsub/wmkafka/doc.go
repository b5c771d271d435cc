// Package wmkafka is Spillway's Kafka adapter. The contexts of its subscriber's messages end with their group session.
// Its marshaler preserves whole records. Its publisher waits for all replicas and creates dead-letter topics. The
// adapter is built on watermill-kafka, and its parts can be combined with the parts there.
//
//	sub, err := wmkafka.NewSubscriber(brokers, "billing", wmkafka.SubscriberConfig{})
//	dead, err := wmkafka.NewPublisher(brokers, wmkafka.PublisherConfig{})
//	dlc, err := spillway.New(ctx, spillway.Config{Publisher: dead, Queue: poison.QueueConfig{Origin: wmkafka.Origin}})
//
// # The subscriber
//
// One handler runs per partition. When the group session ends, no further record is delivered: at a rebalance, at
// Close, and when the context of Subscribe ends. Running handlers may finish, for 5 s, or spillway.Config.DrainTimeout.
// The client sends heartbeats meanwhile, and commits what is acked before it lets the partitions go. In a rebalance the
// other members wait, so the time is bounded by the client's Rebalance.Timeout of 8 s, less 3 s.
//
// After that time the message's context ends. It ends within about a second if the broker removed this process from the
// group, or does not answer. Then the handler has one second to ack. After that the partition belongs to another
// member, and a late ack or nack has no effect. So a slow handler does not hold up a rebalance for long, and the end of
// a session is no failure: package poison publishes and counts nothing.
//
// A nacked message is redelivered after a wait that doubles, from 100 ms to 5 s, and never after its session. An offset
// is committed when all before it are acked.
//
// # Many keys at a time
//
// With InFlight 16, sixteen messages of a partition are handled at the same time, and never two with the same record
// key. The messages of a key are handled in the order of the partition:
//
//	partition   a1 b1 a2 c1 b2 a3      InFlight: 3
//	handled     a1 ───▶ a2 ──▶ a3
//	            b1 ─▶ b2
//	            c1 ─▶
//
// What to know of it:
//
//   - The next message of a key is delivered when the one before is acked, and the handler has returned. A handler that
//     acks its message itself and then goes on is waited for, if it is behind a Spillway middleware. What it returns
//     then is published later, and can be overtaken.
//   - A nacked message holds up its key, and so does one that is published to a stage or as a dead letter.
//   - A key that takes long holds up no other. Behind an unacked message 10,000 others can be handled, or 16 MiB be
//     kept that wait for their keys. Then the partition waits.
//   - A record without a key has no order and waits for no other. An empty key is a key.
//   - At the end of a session, messages that were acked behind an unacked one come again, in the order of each key.
//
// # A failed message holds up no other
//
// When a handler has failed, its message is published to a retry stage or as a dead letter. With InFlight 1 the next
// message is delivered meanwhile, in order. The offset of the failed message, and those behind it, are committed after
// the publisher confirmed it:
//
//	offset       7        8        9        10
//	             handled  placing  handled  handler runs
//	committed ───────────┘                             8 is confirmed: up to 9
//
// What to know of it:
//
//   - Many failures are published at the same time, so that the client sends them in few requests. MaxPlacing and 16
//     MiB bound them. At the bound the partition waits for a confirm. So memory stays flat if all messages fail.
//   - Messages of one key are placed in the order in which they failed. One waits for the confirm of the one before.
//     Records without a key do not wait for each other.
//   - A message that every publisher refused, or that was requeued, is delivered again before new records, after the
//     usual backoff. Those behind it that were handled are not handled again, unless the session ends.
//   - At the end of a session the publishes have the time of handlers to be confirmed. What is not confirmed then is
//     not
//     committed. The next owner gets it, and those behind it that were handled already: 10,000 messages at most, whose
//     effects the idempotent receiver applies once.
//   - A message that its handler acks is done, whatever becomes of its letter.
//   - Outputs are not published in the background. Their order would be lost.
//   - A middleware of your own that is outside of poison.Queue, or between the parts, sees a publish of one message and
//     the handler of the next at the same time. So do the hooks.
//
// MaxPlacing -1 switches this off.
//
// While something that a handler needs is unavailable, its messages are held: the session lives on, and nothing is
// requeued for up to a day. Sarama stops fetching when its channel is full.
//
// A record that the unmarshaler cannot read becomes a message with the record's bytes, which poison.Queue dead-letters
// with reason unmarshal_error. Watermill-kafka's subscriber would stand still. So every handler of this subscriber
// needs a Queue.
//
// # The marshaler
//
// A record that is dead-lettered and redriven keeps its key, headers, id and value. Null stays different from empty,
// and any bytes are allowed. What metadata cannot hold travels as KeyRecord. With QueueConfig.Origin the letter also
// has the key in metadata, so that letters kept elsewhere than on Kafka come back with it. Headers are written in the
// order of their names; several headers of one name keep their order.
//
// The marshaler takes a record key from metadata only of messages that Spillway itself publishes, and of letters in
// topics for letters (Marshaler.Naming). If a handler copies the metadata of its input, its output gets no key from
// there.
//
// # The publisher
//
// Publish returns when all in-sync replicas have the record, or with an error within 30 s. A refusal for size wraps
// classify.ErrTooLarge; messages that were sent with the large one are published.
//
// InitializeTopicsFor creates a dead-letter topic with the partitions, replicas and min.insync.replicas of its source.
// The topic has no expiry, no compaction, and room for the source's largest message with a letter's metadata. An
// existing topic that would lose letters or refuse the largest one is an error. With a poison.Queue it is an error at
// the router's start. retention.ms, retention.bytes and cleanup.policy must keep everything, and max.message.bytes must
// be that of the source plus 64 KiB. PublisherConfig.AllowLossyTopics accepts such a topic. The same holds for the
// topics of retry stages.
//
// A message that came compressed, or with many headers, can be larger for this client than its topic allows. The
// publisher then compresses its letter as well as it can, and the broker decides. No letter can be larger than a
// request: socket.request.max.bytes or 100 MiB, less 16 KiB.
//
// # Retry stages
//
// NewStages publishes to all stages of a service and consumes them, in a consumer group of their own, so that a
// waiting message does not hold up a rebalance of the live topic:
//
//	waiting, subscribe, err := wmkafka.NewStages(brokers, "shop", wmkafka.SubscriberConfig{}, wmkafka.PublisherConfig{})
//	config := stages.Config{Publisher: waiting, Subscriber: subscribe}
//
// That group has the offsets of all stages, to be kept for 100 years: stage topics keep all that they ever had. Each
// second it commits them. What was acked since comes again after a process is killed.
//
// If two routers of one process have the same handlers, give each stage a Subscriber, in the group that
// stages.Config.Subscriber is called with, and a Publisher. For them:
//
//   - SubscriberConfig.InFlight lets a stage handle due messages of that many keys at once. A downstream that has just
//     recovered must bear them. A message with a longer jitter then does not hold up those of other keys.
//   - PublisherConfig.InFlight sends the many messages of a delay store's relay in few requests: 200 is the relay's
//     batch.
//   - ListWaiting finds, at start-up, stage topics with messages that no group has acked.
//   - A failure costs the live handler no wait: see "A failed message holds up no other".
//
// # Ids
//
// Records of producers other than Watermill have no id of Watermill's, which is the default key of an idempotent
// receiver: they would be invalid. Configure another key, idempotency.ByMetadata or idempotency.ByPayloadHash.
// A function over Origin can make a key of topic, partition, offset and timestamp. That recognises only a record that
// Kafka redelivers: a message that is redriven twice is applied twice.
//
// # Offsets
//
// Brokers forget the offsets of a group without members after offsets.retention.minutes, 7 days by default. Then its
// messages would come again, from the oldest on. So a subscription that ends commits its offsets once more, to be kept
// for 100 years. Those of a process that was killed are kept for the broker's time.
//
// # What is not promised
//
//   - One letter per message. Offsets are committed once a second and when a session ends in order. After a process is
//     killed, messages of a second or a few are redelivered, among them some that were dead-lettered. So is a message
//     whose session is lost while its letter is published. Then there is a second letter with the same id. Messages
//     that were acked behind an unacked one are redelivered at an end of a session: behind one whose publish is not
//     confirmed in time, and with InFlight.
//   - Exclusive handling. A connection that falls silent is noticed within 20 to 30 s; a broker gives a member's
//     partitions away after 10 s. Meanwhile another instance may handle the same message. A handler that ignores its
//     context may still run when this process gets the message again. The idempotent receiver applies the effect once.
//   - Order of what failed: a message that is retried later, dead-lettered or redriven is overtaken by those behind it.
//     A letter has the key of its message, so letters of one key stay in one partition and in order. Letters without a
//     key can change places if they were published at the same time; InFlight 1 with MaxPlacing -1 keeps their order. A
//     redriven message goes to the partition that the publisher's partitioner chooses for the key, behind newer
//     messages. Sarama hashes with FNV-1a, Java and librdkafka with murmur2: if your producers differ, so may the
//     partitions.
//   - The timestamp. A letter and a redriven record have the time of their own publishing. The first timestamp is in
//     metadata, as poison.KeyOriginalTimestamp.
//   - Transactions. Messages of aborted transactions are not delivered. A letter, the outputs and the offset of a
//     message are not written in one transaction, and a transactional producer is refused. An open transaction holds up
//     its partition.
//   - A topic that is deleted and made again under a running subscriber. Sarama goes on from the offset that it had
//     reached. If the new topic has more messages by then, those in front of that offset are skipped. Stop the
//     consumers of a topic before you delete it: of a stage topic, all services that have the stage.
//   - Everything of a record. Repeated or null headers beyond 32 KiB collapse as with watermill-kafka. A key beyond 16
//     KiB is lost if a letter is redriven from metadata alone. An id that is an empty header becomes an absent one.
package wmkafka

// The way of a record, for those who change it:
//
//  1. Subscriber.Subscribe makes a subscription, which takes the place of watermill-kafka's handler (subscription.go).
//  2. Sarama calls ConsumeClaim for each partition of a session (claim.go). It chooses a delivery mode, and returns only
//     when the session ends.
//  3. In turn, one handler at a time (in_turn.go): next takes a record, or a message that came back; first counts it in
//     marks; handle sends it and waits until it is settled, or until its letter is being placed.
//  4. read and delivery make the message and its context, which ends with the session (message.go, subscription.go).
//  5. A placement keeps the record's key, so letters of one key are placed in order, and await settles it (in_turn.go).
//  6. marks.position is the offset below the first record that is not done, and mark hands it to the session (marks.go).
//  7. In lanes, with InFlight above 1 (in_lanes.go): each record is open in marks from take on, and a worker of package
//     lanes delivers it until it is acked and the chain has returned.
//
// Stages are one member of a group of sarama's (stage_group.go). Each partition takes records, and hands over what is due
// (stage_part.go).
//
// Two modes stay. In turn waits in the partition's own goroutine and starts none for a record. In lanes there are
// InFlight workers and no placements: a message that is placed holds up its key alone.
