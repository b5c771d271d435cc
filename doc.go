// Package spillway is a dead letter channel for Watermill (https://watermill.io). A few lines beside the router you
// have keep failing messages from blocking a topic or being lost:
//
//   - A transient error is retried with jitter: at once, or later while the topic goes on.
//   - While a service that the handlers call is unavailable, messages wait, uncounted, if Config.Breaker is set.
//   - A permanent error, an invalid message or a panic is dead-lettered with its whole story.
//   - With a database, each message takes effect once.
//   - Dead letters come back through the same router when the cause is gone.
//
// # The front door
//
// New makes a Channel of one Config. The Channel composes the parts in the only right order, outermost first:
//
//	topic ▶ outputs ▶ poison.Queue ▶ crash limit ▶ guard ▶ stages ▶ Retry ▶ breaker ▶ receiver ▶ Recover ▶ handler ▶ output topic
//	                      │                           │ transient, later
//	                      │                           ▼
//	                      │               topic.handler.retry.5s ▶ .1m ▶ .10m ▶ the same handler
//	                      ▼ permanent, invalid, exhausted
//	         topic.dlq, topic.invalid, or the dead-letter store ▶ redrive ▶ topic, or first stage
//
// Channel.Attach protects every handler of a router. Channel.Middleware protects one handler. Channel.Stages adds
// handlers whose failed messages wait in stages while the messages behind them go on. Each part also works alone: see
// the packages poison, middleware, middleware/stages, middleware/breaker, middleware/crashlimit, idempotency and
// redrive. Package classify judges errors.
//
// # What is promised
//
// Nothing is lost. The channel acks a message only after one of these:
//
//   - its handler succeeded,
//   - its dead letter was confirmed,
//   - its place in a retry stage was confirmed,
//   - its error was classify.Discard.
//
// The original survives byte for byte, whatever the handler did to the message in memory. Shutdown is no failure: a
// message whose context was cancelled is requeued, uncounted. Nothing wedges: while any sink accepts letters, every
// message ends and the messages behind it go on. With a database, what a handler writes in the receiver's
// transaction takes effect once per message. What the handler produces is published at least once, always with the same
// ids. With Config.Breaker, an outage of what a handler calls dead-letters no message that fails because of it: see
// package breaker for the exceptions.
//
// # What is not promised
//
//   - Order, without Config.Ordered: a message that is retried later, dead-lettered or redriven leaves its place.
//   - Once, outside the transaction: an HTTP call happens at least once.
//   - One dead letter per message: a crash between the letter and the ack makes a second letter with the same id.
//   - An end of a publish that blocks: Publish has no context. Bound it with the time-outs of the publisher's client.
package spillway
