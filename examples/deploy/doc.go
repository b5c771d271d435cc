// Command deploy shows what a rolling deploy does to the messages that are being handled, and what
// spillway.Config.DrainTimeout does.
//
// Three instances of a service handle messages of a topic, each for 2 s, as a call to another service takes. One after
// the other is closed, and a new one takes its place, while messages come at a steady rate.
//
// With the drain a closing instance takes no more messages, and its handlers finish. With -without the contexts of its
// messages end at once: handlers are cut off, and their calls are made again elsewhere.
//
// -on names where the messages are: kafka, rabbitmq or postgres. A chart shows the run, a line a second on standard
// error. The last line, JSON on standard output, is counted by id. The exit status is 1 if a message was lost or
// dead-lettered, or if with the drain a handler was cut off or a message was handled twice.
package main
