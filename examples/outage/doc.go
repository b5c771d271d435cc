// Command outage shows what happens to a topic while the service that its handler calls is unavailable, and what the
// breaker does.
//
// GitHub's webhook events are published at a steady rate. A handler delivers each of them to a downstream over HTTP,
// and stores in a database that it did. After 3 s the downstream goes away for 10 s: nothing listens on its port any
// more. Then it comes back.
//
// With the breaker the handler stops at the first refused connections. Now and then one webhook is tried. When one is
// delivered, the handler goes on, a step faster every quarter of a second. Webhooks that were cut short on their way
// are dead letters, as always. No other webhook is.
//
// With -without the same service has no breaker. Each webhook is tried 5 times, and is then a dead letter.
//
// By default the webhooks wait in the memory of this process, and the database is a SQLite file. -on names a broker.
//
// A chart shows the run: in place on a terminal, a line for every second on standard error elsewhere. The last line,
// JSON on standard output, is counted by id from what was published, stored and set aside. The exit status is 1 if the
// outage dead-lettered a webhook, or one was lost, or one took effect twice.
package main
