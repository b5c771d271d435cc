// Package poison sets failed messages aside: it turns a message and its failure into a dead letter, and places the
// letter where a person or a redrive finds it.
//
// # The queue
//
// Queue is a router middleware, the outermost part around a handler. What comes out of the handler as an error ends in
// one of these ways:
//
//	the message's context was cancelled   given back: nothing is published, nothing counted
//	the handler nacked it itself          given back
//	discard                               acked and counted, kept nowhere
//	invalid                               <topic>.invalid; if that is refused, <topic>.dlq
//	everything else                       <topic>.dlq
//	a dead letter's own consumer failed   <topic>.parked, never <topic>.dlq.dlq
//
// The source is acked only after a sink confirmed the letter. A refusal is tried again with backoff; a refusal for size
// is tried once more, then with the letter cut to the bone; then come the fallbacks in order. A sink that refuses the letter
// for what it is (ErrRefused, its size even when cut, a panic, a permanent error) is then offered its raw form: id and payload,
// our own keys in printable ASCII, and the producer's id and metadata packed into one value, which Decode and Read unpack; at
// last without these, and x-original-metadata-dropped says how much that was. If no sink takes that, the message is given back
// with everything that was said as the error. Publish has no context of its own, so a publisher that blocks holds
// the message: bound it by the time-outs of its client. What a failed handler produced is not published.
//
// A panic is an error with reason panic, whether Recover stands further in or not. After runtime.Goexit the goroutine
// is lost and the router can neither ack nor nack, so the queue does, after it placed the letter with reason goexit.
//
// # The letter
//
// Letter is the message as it arrived (same id, same metadata, same bytes, whatever the handler did to it in memory)
// with metadata added: where it first came from, why it failed, how often it was tried, how often it came back. The
// keys are the Key constants, the same over every broker, and the values are text. Origin keys tell of
// the first place, as far as the metadata can be believed, but for handler and consumer group; these and the failure keys tell
// of the latest failure. A dead letter that is parked keeps its handler and group. All that is added stays within a
// budget, 16 KiB by default: of a long description or stack the head is kept and the cut is marked; what names something is
// whole or absent. Free text made for people has bytes that are no UTF-8 replaced; an id, key or name keeps them in base64.
//
// Decode reads letters, ours and those of Watermill's PoisonQueue, Spring Kafka and Kafka Connect. Nobody vouches for what
// it reads: it bounds counts, times and texts, and who sends a letter anywhere asks an allow-list first, as package redrive
// does. The headers of other writers go off the original as our own keys do, so a redriven message comes without them.
//
// A message in a retry stage of package middleware has the same keys, without the stack and with less of the description, and
// three of its own: which stage, and until when. It is no dead letter, though IsLetter and Decode cannot tell: RetryStageOf does.
// When it becomes one, attempts and history go on from there.
//
// # What is not promised
//
// Order: a message that was set aside is out of its place. One letter per message: a message can be delivered again
// after its letter was placed and before it was acked, and then there is a second letter with the same id. Room: a
// letter is larger than its message by the budget, and a broker whose limit leaves no room for 2 KiB beside the payload needs a
// fallback.
package poison
