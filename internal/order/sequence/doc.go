// Package sequence keeps the messages of a key in the order of their source while one of them must be tried later. This
// is the protocol; docs/order.md is for its users.
//
//	chain: a message fails ──▶ Delivery.Park ──▶ a row of spillway_parked ──▶ Owner: its lane waits
//	subscriber: Owner.Next ──▶ Owner.Heads ──▶ the handler again ──▶ Owner.Delete
//	poison.Queue: a letter is confirmed ──▶ Settle ──▶ a row of spillway_keys without an effect
//
// A Store is the table. An Owner is what the process that has a source knows of its sequences: it looks once, behind
// the source's position, and from then on a message whose sequence is not parked costs no query. A Delivery is one
// message on its way through the chain. An Ordering is all that a channel has of this, and is given to subscribers in
// the context of Subscribe.
//
// # What a sequence is
//
// The messages of one key, of one partition of one topic, in the order of the source, for one consumer. Its identity is
// service, consumer group, topic, partition and key. If partitions are added, a key may move: Kafka has no order then
// either. A message without a key is in no sequence. An empty key is a key.
//
// A lane runs the messages of a sequence one at a time, beside other lanes. It goes on when the message is settled or
// parked, the chain has returned, and the outputs are published. A handler may ack early, and the router publishes
// outputs after the chain: so a lane waits for both.
//
// # States of a message
//
//	state                       is written                                     in which transaction
//	unsettled                   nothing
//	claimed                     its key, in an open transaction                the handler's
//	applied                     its key, its effects, its outputs              the handler's
//	settled without an effect   its key, with its offset and redrive count     that of the letter, or a short one after
//	                                                                           the broker confirmed it; discard, skip
//	                                                                           and expiry: before the ack
//	parked                      a row: sequence, position, coordinates,        a short one, after the attempt was
//	                            fingerprint, due time                          rolled back
//	held                        the same row, marked                           the same
//	decided                     the same row, with decision, person, reason    a person's, with the record of it
//
// A sequence is parked if a row of it exists: no counter must agree with the rows. Rows are in the order in which they
// were appended. An Owner counts what it parked and deleted, for the limits alone.
//
// # The rules
//
// TestModel plays the protocol with the real tables, among rebalances, crashes, stopped processes, resets of the offset
// and lost answers. A switch of world_test.go breaks a rule, and TestModelFindsFaults requires a violation. The switches
// are in brackets.
//
//   - Take over: the new owner reads first the source's position, then what is parked, from the primary
//     (unfetchedDrain).
//   - Live message: if its sequence is parked, it is appended. Otherwise its key is claimed.
//   - Append, park: a row with these coordinates and this fingerprint is not written twice. The lane waits for the
//     commit (parkLater).
//   - Drain: the first row, by the same handler. A hold counts only while its message is unsettled and undecided.
//   - End of a drain: publish the outputs, then delete the row, by coordinates and never as "the first"
//     (deleteWithEffect).
//   - Lane: it goes on after the outputs, or after the settled row (laneEndsEarly, settleLater).
//   - Letter: it leaves a settled row. If its message was applied, the recorded outputs are published (noTrace).
//   - Commit of an offset: behind it, everything is settled with its outputs published, or parked (commitTooFar).
//   - Take from the source: not while as much is parked as may be. The source waits, and no lane (capInLane,
//     capOvertakes).
//   - Decide: a person writes on the row that the person saw, once.
//   - Carry out: the owner does, in the message's lane. Release: drain. Skip: the letter, then as any letter. Discard:
//     settle. The row goes last.
//   - Redrive: it writes nothing beforehand. A key that is settled without an effect absorbs deliveries up to its
//     offset and redrive count.
//   - Purge: after the retention. The keys of parked messages stay (shortRetention).
//   - Erasure: settle, then delete. It waits while the key is claimed.
//   - Deploy: Kafka admits no member without parking while others are there (mixedVersions).
//
// # Why no fence is needed
//
// A process that was stopped can go on as if it still owned the partition: a zombie. The broker refuses its commits,
// and nothing else. The claim: effects of a sequence still take place in the order of the source, each once.
//
//  1. Each message settles once, by its unique key. This is permanent while anything may bring the message.
//  2. A process starts a message only when it knows that all earlier ones of the sequence are passed: settled, with
//     their outputs published. Either the process passed them, or they are before the position that it read, and no row
//     of them existed when it looked afterwards.
//  3. The second inference holds. The position moves past a message only after it was passed or parked. A row goes only
//     when its message was passed. Once the new position was read, a zombie's commit is refused, so none comes between
//     reading and looking.
//  4. What a zombie parks later is passed already, or comes to the owner from the source. A left-over row is absorbed
//     when it is drained. Left-over rows are in order too, because a row exists only if each earlier message was passed
//     or parked before.
//
// Hence no message settles before an earlier one, however many zombies there are. The conditions:
//
//   - Retention of keys is longer than any process is stopped, any replay, and any wait for a redrive. Receiver.Version
//     and keys that are not unique are refused.
//   - Durable commits, read from the primary. A fail-over that loses confirmed transactions loses parked messages whose
//     offsets are committed.
//   - Transaction mode. A lease ends while its holder is stopped, so an effect outside of the database can be late.
//   - READ COMMITTED, so that a claim sees the row that it waited for. The receiver sets it.
//
// What happens when a zombie wakes up:
//
//	before its claim                               it is absorbed
//	in the handler, with the claim open            the owner waits for the key, in this lane alone, until the server's
//	                                               idle time-out
//	after the effect, before the outputs           the owner absorbed the message and published the recorded outputs;
//	                                               the zombie publishes them again, late
//	after the outputs, before it deletes the row   the row is gone, or is the right one
//	before it commits the offset                   the broker refuses
//	before it parks, holds or appends              a left-over row, absorbed later; a hold of it does not count
//	after its letter was confirmed                 it settles, unless the key is applied: then the letter's redrive is
//	                                               absorbed
//	between reading the position and looking       it looks late, and so sees more
//	after its message was redriven                 its own delivery is before the redrive, so it is absorbed
//
// Closed by argument alone:
//
//   - A topic made anew has the old offsets again. A row with the same coordinates and another fingerprint is another
//     message: it waits behind the others. A key with another fingerprint makes a dead letter, key_reused.
//   - Two partitions with one key are two sequences. With identity by key alone, a hold in one would stop the other.
//   - A decision is written down, and carried out by the owner. Only the owner has the publishers, seals and masks of a
//     letter, and a command would wait while the key is claimed.
//
// # On RabbitMQ
//
// Ordered needs a Key, and so a queue with a single active consumer. The queue stands for the partition, and its
// virtual host for the group.
//
//   - No offsets. A row is known by all that its message holds, and by its redrive count. Two messages that are alike
//     in all of this are one to the receiver, too. A message that was parked and comes again is not parked twice, and
//     is acked.
//   - The position is what the queue still has. When a channel ends, what was not acked goes back in order, and then
//     another consumer becomes active. A zombie's acks have no channel any more. So a consumer that looks behind its
//     first delivery sees all that the one before parked.
//   - No cancel. A consumer that closes takes no more, lets its handlers end, and closes its channel. A cancel would
//     make another one active meanwhile. Priorities of consumers and queues, and delivery limits, are refused.
//   - An idle queue tells no consumer that it became active. A lease of each source would say who may drain. It is not
//     needed, because draining is safe in any process, as a zombie's is. So a consumer without a delivery drains what
//     is due for more than 30 seconds. One that is at work on a row says so every 10 seconds, in due_at, to spare
//     double work.
//
// What closes its races:
//
//   - A lane is found empty before the first delivery, and forgotten after the look at it: a look in between keeps it.
//   - Two consumers drain one message: the key. The second one waits, and absorbs it. Its outputs can appear again.
//   - Nodes of a cluster lose each other, another consumer is active for a while, and the first one again on its old
//     channel: after 10 seconds of silence it looks again. A shorter turn is not seen.
//
// # On tables
//
// A table's subscriber has the position of its group locked while it handles messages. The position, keys, effects,
// parked rows and their deletions commit in that one transaction, and so do outputs and letters of a wmsql.Publisher.
//
//   - What is parked is read behind the lock. A process that parks a message moves the position in the same
//     transaction. So where this process left the position, there is nothing to read. After another instance, or a
//     rollback, one query reads all parked keys.
//   - A batch that is rolled back takes its parked rows and its deletions with it. There are no left-over rows.
//   - A zombie holds the lock or has no transaction. Its statements are refused, so it settles and parks nothing.
//   - A row goes with its message's effect and outputs. They cannot be lost in between.
//   - Parked and live messages take turns, a few in one transaction, by the instance that has the lock.
package sequence
