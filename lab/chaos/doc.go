// Command chaos runs a service that Spillway protects on a real broker, breaks processes, connections and servers while
// messages flow, and then accounts for every id. It prints one JSON line per broker. It fails unless all of these are
// 0: lost, doubled and stuck messages, healthy messages among the dead letters, and letters or outputs that the
// message's kind forbids.
//
//	go run ./lab/chaos -broker kafka -messages 2000 -seed 7
//
// # The campaign
//
// Two consumer processes run the front door in the configuration that the documentation recommends: stages, the
// receiver with a transaction, the delivery limit, outputs, dead-letter topics. They reach the broker and the database
// through proxies.
//
//	driver ──▶ broker ──proxy──▶ consumer 1, consumer 2 ──proxy──▶ broker: outputs, stages, dead letters
//	                                     └──────────────proxy──▶ database: effects, keys, deliveries
//
// Meanwhile the driver kills consumers (SIGKILL), deploys new ones (start, then SIGTERM to the old), stops them for a
// while (SIGSTOP), cuts or silences their connections, kills the database, and kills the broker. On RabbitMQ it has the
// queue of outputs nack for a while. On tables the database is the broker. A consumer that ends is started again, as a
// supervisor does. Then all faults end.
//
// # The kinds
//
// A message's id names its kind, or a metadatum of a message without an id; kind.go lists the outcome of each kind.
// Every id ends in one effect, which is written in the receiver's transaction, or in a dead letter with the reason of
// its kind.
//
// # Repeating
//
// The seed fixes the messages, their order, the faults, and the place of each fault in the flow of messages. It does
// not fix how concurrent events interleave, so it may take several runs with one seed to repeat a failure.
package main
