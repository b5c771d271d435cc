// Package poison dead-letters messages. It makes a dead letter of a failed message and publishes the letter to a
// dead-letter topic. There a person or a redrive finds it.
//
// # The queue
//
// Queue is a router middleware, the outermost part around a handler. The error of the handler decides what becomes of
// its message:
//
//	the message's context was cancelled   nacked; nothing is published or counted
//	the handler nacked the message        nacked
//	discard                               acked and counted, kept nowhere
//	invalid                               to <topic>.invalid; if that is refused, to <topic>.dlq
//	every other error                     to <topic>.dlq
//	a dead letter's own consumer failed   to <topic>.dlq.parked, never to <topic>.dlq.dlq
//
// A naming.Scheme gives the topics other names. Parked and quarantined letters go to <dead-letter topic>.parked and
// <dead-letter topic>.quarantine.
//
// The queue acks the message only after a publisher confirmed the letter. Until then it tries, in this order:
//
//  1. The letter, PublishAttempts times with a backoff. A refusal for size is tried once more.
//  2. After a refusal for size, the letter with its texts cut short, then with 256 bytes.
//  3. The Fallbacks, each in the same way.
//  4. The raw form, if a publisher refuses the letter for its content (classify.ErrRefused, size even when cut, a panic,
//     a permanent error). It has id and payload, and Spillway's keys in printable ASCII. The producer's id and metadata
//     are packed into one value. Decode and Read unpack that value.
//  5. The raw form without the producer's id and metadata. x-original-metadata-dropped says how many bytes were left
//     out.
//  6. The message as it came, if a publisher has no room for any letter. Its story is in the log.
//
// If all of this is refused, the queue nacks the message, with all refusals as the error. Publish takes no context: a
// publisher that blocks holds the message, so bound it by the time-outs of its client. Outputs of a failed handler are
// not published.
//
// A panic is an error with reason panic, with or without Recover further in. After runtime.Goexit the router can
// neither ack nor nack, because the goroutine has ended. The queue publishes the letter with reason goexit and settles
// the message itself.
//
// # The letter
//
// A Letter is the message as it arrived, with the same id, metadata and bytes, whatever the handler changed in memory.
// Its metadata also says where the message came from, why it failed, how often it was tried and how often it was
// redriven. The keys are the Key constants. They are the same over every broker, and all values are text of one line.
//
//   - Origin keys record where the message first appeared, if the metadata can be trusted. Handler and consumer group
//     are those of the latest failure. A parked letter keeps its handler and group.
//   - Failure keys describe the latest failure.
//   - All added metadata stays within a budget, 16 KiB by default. A long description or stack keeps its head, with a
//     mark where it was cut. An id, key or name is whole or absent.
//   - Texts for people are valid UTF-8: other bytes are replaced. An id, key or name that is not UTF-8 is kept in
//     base64.
//
// Decode reads letters of Spillway and of other writers: docs/dead-letters.md has the table. What it reads is not
// verified: it bounds counts, times and texts. Before you publish a letter to the topic it names, ask an allow-list, as
// package redrive does. The original comes without the headers of all these writers, so a redriven message has none of
// them.
//
// A message in a retry stage of package stages has the same keys, without the stack and with a shorter description. Its
// KeyRetryStage names the stage. It is no dead letter, but Decode takes it for one. If it is dead-lettered later, its
// attempts and history are continued.
//
// # Other publishers and adapters
//
// A publisher that can make its topics is an Initializer. The queue asks it at start-up, so that a missing dead-letter
// topic is an error of Router.Run. A subscriber that cannot read a message delivers it with MarkUnreadable, and the
// queue dead-letters it.
//
// # What is not promised
//
//   - Order: a dead-lettered message has left its place.
//   - One letter per message: if the process ends after the letter was confirmed and before the message was acked, the
//     message is delivered again. Then there may be a second letter with the same id.
//   - Room: a letter is larger than its message, by up to 16 KiB. If the broker's limit leaves less than 2 KiB beside
//     the payload, configure a fallback.
package poison
