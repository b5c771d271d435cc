// Package spillway is a dead letter channel for Watermill (https://watermill.io): the router you have, and a few lines
// more, after which transient errors are retried with jitter, at once or later while the topic goes on, permanent ones and
// panics are set aside at once with their whole story, each message takes effect once, and dead letters come back through
// the same router when the cause is mended.
//
// # The front door
//
// New makes a Channel of one Config, with the parts in the only right order, whatever is configured first:
//
//	topic ▶ outputs ▶ poison.Queue ▶ limit ▶ guard ▶ stages ▶ Retry ▶ idempotent receiver ▶ Recover ▶ handler ▶ output topic
//	                      │                    │ transient, later
//	                      │                    ▼
//	                      │        topic.handler.retry.5s ▶ .1m ▶ .10m ▶ the same handler
//	                      ▼ permanent, invalid, exhausted
//	         topic.dlq, topic.invalid, or the dead-letter store ▶ redrive ▶ topic, or first stage
//
// Stages adds handlers whose failed messages wait there, while those behind them go on.
//
// Attach protects every handler of a router; Middleware protects one, for those who mix: each part is a middleware of
// its own as well, in the packages poison, middleware, idempotency and redrive, with errors judged by package classify.
//
// # What is promised
//
// Nothing is lost: a source message is acked only after its handler succeeded, its dead letter or its place in a retry stage
// was confirmed, or its error said to discard it. The original survives, byte for byte, whatever the handler did to it in
// memory. Going away is no failure: a message whose context was cancelled is given back, not dead-lettered and not counted.
// Nothing wedges: while any sink accepts, every message ends, and those behind it go on. With a store, what a handler writes
// in its transaction happens once per message, and what it produces is published at least once and always under the same id.
//
// # What is not promised
//
// Order: a message that is retried, set aside or redriven is out of its place. Once, beyond the transaction: an effect
// outside of it, such as an HTTP call, happens at least once. One dead letter per message: a delivery that is repeated
// between the letter and the ack makes a second one with the same id. A bound on a publisher that blocks: Publish has no
// context; bound it with the time-outs of its client.
package spillway
