// Package placing lets a subscriber take the next message while a failed one is placed elsewhere, with the ack still
// outstanding.
//
// A subscriber that can do so puts a Delivery into the context of each message. A part that begins to publish the
// failed message, and to wait for the confirm, calls Begin. From then on the handler is done with the message: nothing
// but publishing is left. The message's own goroutine goes on as before, with attempts, waits, fallbacks and the
// router's ack or nack. The subscriber may deliver the next message meanwhile.
//
//	handler fails ──▶ verdict ──▶ Begin ──▶ publish … confirm ──▶ ack
//	                                 │
//	                                 └──▶ the subscriber takes the next message, and holds back what an ack would commit
//
// # Where it is called
//
//   - poison.Queue calls Begin when it makes a letter of the message of a chain. package stages calls it when it sends
//     the message to a stage. Each calls it after the classification, and after the checks for a message that went
//     away, was nacked, or is inside of a claim.
//   - Discard is no placement: nothing is published, and the ack follows at once. Queue.Place without a chain has no
//     delivery to speak for.
//   - Outputs do not call it. The router publishes outputs after the chain, and two handlers' outputs at once would
//     lose their order.
//   - Own handlers (drains, letters, redrive) run without a chain, so none of their messages is placed in the
//     background.
//
// # A message that goes first
//
// The crash limit calls First before it refuses a message. The next message may be as deadly, and would end the process
// while the letter is on its way, or its ack not yet at the broker. So the subscriber places this one, and settles it
// at the broker, before it takes the next one. A publisher that is unavailable holds up the subscription for FirstFor
// at most.
//
// # What may follow
//
// Begin can be called several times in a delivery: a stage refuses the message, and the queue makes a letter. Only the
// first call counts, and the subscriber sees to that. What follows is the router's ack or nack, as without the call:
//
//   - An ack says that the placement was confirmed.
//   - A nack says that each sink refused the message, that the message was requeued (chain.Requeue), or that it went
//     away (its context ended). The subscriber delivers it again before it takes new messages, with its usual backoff. After
//     the end of the session, it does not.
//   - Neither, and the session ends: the message belongs to the next owner.
//
// A handler that acked its message itself is past all this: the subscriber has gone on already, and Begin has no
// effect.
//
// # What else in a chain is open meanwhile
//
// The parts inside of the caller have returned: the handler, Recover, the receiver with its transaction, the
// breaker, and Retry. The message's key is free, and no slot of the breaker is taken. These parts are still open,
// and each takes several messages at once, because the messages of several partitions always came at once:
//
//   - The crash limit keeps the message's mark, because a publisher can end the process too. A suspect that waits to
//     run alone waits for placements, and no placement waits for a suspect.
//   - The guard of internal/chain/guard holds nothing.
//   - The breaker of the publisher (internal/hold/outage) holds each message of an outage. The subscriber's bound
//     limits their number.
//   - hold.Settle looks for copies that the broker delivers again. A message that was nacked is forgotten there, so
//     its next delivery is no copy.
//   - A stage's waiter holds its message until the message is settled, each in a goroutine of its own.
//   - Middlewares of the application that are outside of the chain, or between its parts, see the placement of one
//     message and the handler of the next at the same time. One that calls the chain again after an error must not run
//     there: poison.Queue belongs outermost.
package placing
