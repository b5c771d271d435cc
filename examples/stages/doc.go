// Command stages shows what a downstream that is unavailable for a while does to a topic, and what staged retry does
// about it.
//
// GitHub's webhook events are published steadily to a Kafka topic of one partition. A service stores each of them once,
// in PostgreSQL, and emits a summary; for some kinds of events (-needs) it first looks something up in a downstream,
// which is down (it answers 503) for the first 20 s and then recovers.
//
// With Spillway's stages an event whose look-up fails waits in the topic of its stage, 1 s, then 3 s, then 10 s, and
// the events behind it go on. The stages last 14 s together, so what failed in the first seconds is a dead letter when
// the downstream recovers; in the end those letters are redriven, and re-enter at their first stage.
//
// With -blocking the same service has Watermill's own Retry and PoisonQueue in place of that. The first look-up that
// fails holds its partition, and the live topic stands still until a retry finds the downstream up again.
//
// A chart shows the run: in place on a terminal, a line for every second on standard error elsewhere. The last line,
// JSON on standard output, is counted by id from what was published, stored, received and set aside; the exit status is
// 1 where something was lost or stored twice.
package main
