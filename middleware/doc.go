// Package middleware holds what stands between a Watermill router and a handler so that failure stays bounded: Recover,
// Retry, Stages, Guard and Outputs. Each works alone with Watermill's own middlewares; the front door, package spillway,
// puts all of them in their order.
//
//	router.AddMiddleware(
//		outputs.Middleware,              // ties produced messages to their source
//		queue.Middleware,                // poison.Queue: sets aside what fails for good
//		limit.Middleware,                // delivery.Limit, if messages may end the process
//		guard.Middleware,                // what should not reach the handler
//		stages.Middleware,               // what may pass with more time, in a topic of its own
//		retry.Middleware,                // what may pass with time
//		receiver.Middleware,             // idempotency.Receiver, if effects must happen once
//		middleware.Recover{}.Middleware, // panics become errors
//	)
//	router.AddPublisherDecorators(outputs.Decorate) // before any other decorator
//	router.AddPlugin(stages.Plugin)                 // and limit.Plugin
//
// # Why this order
//
// The first is outermost. Recover stands next to the handler, so that everything else sees errors and nothing panics.
// Retry stands outside of the receiver, so that each attempt has a transaction of its own, and inside the queue, so that
// only what it gave up on is set aside. The guard stands outside of Retry, because an expired message stays expired, and
// inside the queue, which places what the guard refuses. Stages stand inside of both, because what waited may have expired
// meanwhile and is set aside when no stage is left, and outside of Retry, which says what is tried at once. Outputs stands
// outside of all: it binds what finally leaves.
//
// # Stages
//
// A handler that is added with Stages.AddHandler, or extended with Stages.Extend, has a topic for each stage and a handler
// in the router that consumes it: orders, handled by billing, goes through orders.billing.retry.5s, .1m and .10m.
//
//	failed ──▶ waiting ──▶ due ──▶ handled again ──▶ done
//	             │  ▲                   │
//	             └──┘ goes round        ├──▶ waiting in the next stage
//	                                    └──▶ set aside: no stage is left, or none would help
//
// A message fails, and is published to its stage with its story and the time it is due; then the live topic goes on. It is
// waiting while the stage's subscriber holds it, not acked, before the router sees it. One that is due later than it can be
// held, by MaxHold or an ack deadline, goes round: it is published to the end of its topic again. When it is due the
// handler gets it, under the handler's own name and topic, with the same middlewares. A stage that does not take a message
// gives it back to the topic that it came from, uncounted: but not for good, since it holds up those behind it. What a
// publisher refuses for what the message is, is set aside, and what was refused for five minutes while the stage took others;
// where the stage takes nothing, one message in five minutes, or none if its broker or store is away.
//
// Retry makes way for stages of the same chain, as the front door composes it: it tries once where nobody said how often.
// Attached one by one it does not know of them, so say RetryConfig.Attempts.
//
// # What is promised
//
//   - Each attempt, and each redelivery after an error, gets the message as it arrived: id, metadata, payload, context,
//     whatever the handler did to it.
//   - Going away is no failure. A message whose own context was cancelled is given back at once; nothing is counted,
//     nothing published. A handler that acked its message has not gone away, one that nacked it has given it back itself,
//     and what it produced is not published.
//   - A retry never waits past the deadline of the message's context and leaves time to set the message aside. It never
//     retries without end: attempts of nested retries add up.
//   - What a failed handler produced is not published.
//   - A produced message that nobody accepts sets its source aside after bounded tries, with reason
//     output_undeliverable, and the messages behind it go on. The handler is not run again for it.
//   - An error that leaves Retry or Stages is a *classify.Failure with the verdict, the attempts and their history, and still is
//     what the handler returned, to errors.Is and errors.As.
//   - A hook that panics is logged, and changes nothing.
//   - A message that waits is never handled early: not before the stage's delay has passed since its attempt failed, nor
//     before its error's retry-after. It is late by the jitter's amplitude at the most, and a little, as long as its
//     stage's consumer keeps up; one that asked for more than the last stage's wait, by as long as a message is held too.
//   - A due time that cannot be true holds a message up for the stage's delay and jitter at the most; where messages go round, for
//     twice MaxDelay.
//   - Who closes does not wait for those who wait. They are given back, uncounted.
//
// # What is not promised
//
//   - Order. Retry holds its message, and on a broker that delivers one at a time all behind it; but a message that was
//     set aside comes back, if it does, after those that came behind it.
//   - Exactly one publish. Outputs refused as a batch are published again one by one, with the same ids; and a source
//     set aside because of one output may have had others published.
//   - One clock. A message that goes from machine to machine is early or late by no more than their clocks differ.
//   - That waiting costs nothing. A wait on a SQL pub/sub holds a transaction: there, give Stages a Store. gochannel
//     delivers all messages at once, and so keeps all that wait in memory, and loses them with the process.
//   - That a wait of Retry is cheap. It holds the message, and what stands behind it in its partition. Keep waits here short.
//   - Anything without Outputs for what happens after the middlewares returned: the router publishes last, and when that
//     fails it nacks the message as the handler left it.
//   - That runtime.Goexit is an error: it passes all parts here, and poison.Queue settles it.
package middleware
