// Package stages gives a failed message to its handler again later, while the messages behind it go on.
//
// A handler that waits before its next attempt holds up all messages behind the failed one. With stages, the failed
// message is published to a topic of its own, with its history and the time when it is due. Then the live topic goes
// on. When the message is due, the same handler gets it again.
//
//	later, err := stages.New(queue, stages.Config{
//		Publisher:  waiting,
//		Subscriber: func(topic, group string) (message.Subscriber, error) { ... },
//		Stages:     stages.Delays(5*time.Second, time.Minute, 10*time.Minute),
//	})
//	router.AddMiddleware(queue.Middleware, later.Middleware, retry.Middleware, middleware.Recover)
//	router.AddPlugin(later.Plugin)
//	later.AddHandler(router, "billing", "orders", sub, "invoices", pub, handle) // in place of router.AddHandler
//
// The front door, package spillway, does this with Config.Stages and Channel.Stages.
//
// # The way of a message
//
// The handler billing on the topic orders has the stage topics orders.billing.retry.5s, .1m and .10m. The router has
// one handler, billing, which gets the messages of the live topic and those of its stages that are due. It starts and
// stops with its stages.
//
//	failed ──▶ waiting ──▶ due ──▶ handled again ──▶ done
//	             │  ▲                   │
//	             └──┘ goes round        ├──▶ waiting in the next stage
//	                                    └──▶ dead-lettered: no stage is left, or the error is permanent
//
// A message is waiting while its stage holds it without an ack, before the router gets it. It is held for at most 15
// minutes. A message that is due later goes round: it is published to the end of its stage topic again.
//
// Many brokers deliver a message again that has no ack after a time. There messages are held for at most half of that
// time, or for 20 s if the time is not known (see Config.Subscriber). If this process gets a copy nevertheless, the
// copy is not handled: it is acked or requeued as the message itself is.
//
// If a stage does not take a message, the message is requeued to its live topic, uncounted. If that lasts for five
// minutes while the stage takes other messages, the message is dead-lettered. If the stage takes none, one message in
// five minutes is dead-lettered, and none while the broker or store is unavailable. A message that the publisher can
// never accept is dead-lettered at once.
//
// With a Store, messages wait in a table instead of topics. Each waits for exactly its time, on any pub/sub. On a SQL
// pub/sub, use a Store: there a message that waits in a topic holds a transaction open.
//
// With stages in the same chain, Retry calls a handler once before its message waits, unless RetryConfig says
// otherwise. Middlewares that are attached one by one do not know of each other: set RetryConfig.Attempts there.
//
// A message that comes out of a stage passes the same breaker and the same retry budget as live messages do. While
// these hold it, it counts no attempt.
//
// # What is promised
//
//   - A message is never handled early: not before the stage's delay has passed since its attempt failed, nor before
//     the retry-after of its error. If the stage's consumer keeps up, it is late by at most the jitter and a little
//     more. If its error asked for more than the last stage's delay, it can be late by the time that it is held, too.
//   - A due time that cannot be true delays a message by at most the stage's delay and jitter. If messages of its stage
//     go round, the limit is 48 hours, or twice the longest stage's delay if that is longer.
//   - Closing a router does not wait for messages that wait. They are requeued, uncounted.
//   - An error that leaves Stages is a *classify.Failure with the verdict, the attempts and their history. The
//     handler's error is still found in it by errors.Is and errors.As.
//
// # What is not promised
//
//   - One copy over several processes. If the broker delivers a message again to another process while this one holds
//     it, both handle it.
//   - Order. A message that waits is overtaken by those behind it.
//   - One clock. A message that goes from machine to machine can be early or late by the difference of their clocks.
//   - Durability that the pub/sub lacks. gochannel keeps waiting messages in memory and loses them with the process.
package stages
