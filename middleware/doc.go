// Package middleware holds the parts between a Watermill router and a handler that keep failures bounded:
//
//   - Recover makes errors of panics.
//   - Retry calls a handler again at once, if another attempt can succeed. A Budget bounds how often, as a share of all
//     messages.
//
// Each works alone, with Watermill's own middlewares. Package spillway, the front door, puts all parts in their order.
// Packages below have more parts: outputs dead-letters a message whose outputs cannot be published, stages handles a
// message again later, breaker holds messages in an outage, and crashlimit dead-letters messages that end the process.
// A part that is used alone needs a Logger of its own.
//
//	router.AddMiddleware(
//		outputs.Middleware,              // outputs.Outputs: ties produced messages to their source
//		queue.Middleware,                // poison.Queue: dead-letters messages that failed for good
//		limit.Middleware,                // crashlimit.Limit, if a message can end the process
//		later.Middleware,                // stages.Stages: another attempt later
//		retry.Middleware,                // another attempt at once
//		outages.Middleware,              // breaker.Breaker: holds messages while what the handler calls is unavailable
//		receiver.Middleware,             // idempotency.Receiver, if effects must happen once
//		middleware.Recover,              // panics become errors
//	)
//	router.AddPublisherDecorators(outputs.Decorate) // before any other decorator
//	router.AddPlugin(limit.Plugin)
//	router.AddPlugin(later.Plugin)
//
// # Why this order
//
// The first part is outermost.
//
//   - Recover is next to the handler, so that all other parts get errors and no panics.
//   - Retry is outside of the receiver, so that each attempt has a transaction of its own.
//   - Stages are outside of Retry, which says how often to try at once.
//   - The front door's guard is outside of both, because a message that waited may have expired.
//   - The queue is outside of these, because it dead-letters what they give up.
//   - Outputs is outermost: it ties the messages that finally leave.
//
// # The retry budget
//
// If everything fails, five attempts per message are five times the load, on a service that already fails.
// RetryConfig.Budget bounds further attempts to a share of the handled messages (20 %) and a floor (10 a second), over
// the last 10 seconds. The floor is there without traffic too. If the budget is spent:
//
//   - A message that has a next stage goes there, instead of being tried again in place.
//   - Another message waits until the budget has an attempt, or is requeued uncounted after RetryConfig.NotNowHold.
//   - A message that comes out of a stage waits before its attempt. It needs an attempt of the budget, which is
//     returned if it succeeds.
//   - No message is dead-lettered for it. After an hour a message goes on without the budget, so each
//     message ends.
//
// Live messages, messages out of stages and redriven messages have separate budgets, so that none of these can starve
// the others. Live messages count as handled for each of them. If more messages fail for long, those out of stages wait
// longer than their stage says.
//
// # What is promised
//
//   - Each attempt gets the message as it arrived, with its id, metadata, payload and context, whatever the handler did
//     to it. So does each redelivery after an error.
//   - A message whose own context was cancelled has not failed. It is requeued at once, uncounted, and nothing is
//     published. A handler that acks its message cancels that context too, and has not gone away. If a handler nacks
//     its message, the message is requeued and its outputs are not published.
//   - A retry never waits past the deadline of the message's context, and leaves time to dead-letter the message. Its
//     attempts are bounded: those of nested retries add up.
//   - An error that leaves Retry is a *classify.Failure with the verdict, the attempts and their history. errors.Is and
//     errors.As still find the handler's error in it.
//   - A hook that panics is logged, and changes nothing.
//
// # What is not promised
//
//   - Order. Retry holds its message, and on a broker that delivers one message at a time all messages behind it. A
//     message that was dead-lettered comes back, if it does, after those behind it.
//   - Short waits. Retry holds the message, and all messages behind it in its partition, while it waits. Use package
//     stages for long waits.
//   - An end of runtime.Goexit. It passes all parts here, and poison.Queue settles it.
package middleware
