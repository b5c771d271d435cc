// Package middleware holds what stands between a Watermill router and a handler so that failure stays bounded: Recover,
// Retry, Guard and Outputs. Each works alone with Watermill's own middlewares; the front door, package spillway, puts
// all of them in their order.
//
//	router.AddMiddleware(
//		outputs.Middleware,              // ties produced messages to their source
//		queue.Middleware,                // poison.Queue: sets aside what fails for good
//		guard.Middleware,                // what should not reach the handler
//		retry.Middleware,                // what may pass with time
//		receiver.Middleware,             // idempotency.Receiver, if effects must happen once
//		middleware.Recover{}.Middleware, // panics become errors
//	)
//	router.AddPublisherDecorators(outputs.Decorate) // before any other decorator
//
// # Why this order
//
// The first is outermost. Recover stands next to the handler, so that everything else sees errors and nothing panics.
// Retry stands outside of the receiver, so that each attempt has a transaction of its own, and inside the queue, so that
// only what it gave up on is set aside. The guard stands outside of Retry, because an expired message stays expired, and
// inside the queue, which places what the guard refuses. Outputs stands outside of all: it binds what finally leaves.
//
// # What is promised
//
//   - Each attempt, and each redelivery after an error, gets the message as it arrived: id, metadata, payload, context,
//     whatever the handler did to it.
//   - Going away is no failure. A message whose own context was cancelled is given back at once; nothing is counted,
//     nothing published. A handler that acked its message has not gone away, one that nacked it has given it back itself.
//   - A retry never waits past the deadline of the message's context and leaves time to set the message aside. It never
//     retries without end: attempts of nested retries add up.
//   - What a failed handler produced is not published.
//   - A produced message that nobody accepts sets its source aside after bounded tries, with reason
//     output_undeliverable, and the messages behind it go on. The handler is not run again for it.
//   - An error that leaves a part is a *classify.Failure with the verdict, the attempts and their history, and still is
//     what the handler returned, to errors.Is and errors.As.
//   - A hook that panics is logged, and changes nothing.
//
// # What is not promised
//
//   - Order. Retry holds its message, and on a broker that delivers one at a time all behind it; but a message that was
//     set aside comes back, if it does, after those that came behind it.
//   - Exactly one publish. Outputs refused as a batch are published again one by one, with the same ids; and a source
//     set aside because of one output may have had others published.
//   - That a wait is cheap. It holds the message, and what stands behind it in its partition. Keep waits here short.
//   - Anything without Outputs for what happens after the middlewares returned: the router publishes last, and when that
//     fails it nacks the message as the handler left it.
//   - That runtime.Goexit is an error: it passes all parts here, and poison.Queue settles it.
package middleware
