// Command chaos runs a service that Spillway protects on a real broker, breaks everything around it while messages flow, and
// then accounts for every id. It prints one JSON line per broker, and fails unless all of these are 0: lost, doubled, stuck,
// healthy messages among the dead letters, and letters or outputs that are not as the message's kind demands.
//
//	go run ./internal/chaos -broker kafka -messages 2000 -seed 7
//
// # The campaign
//
// Two consumer processes run the front door in the configuration that README recommends: stages, the receiver with a
// transaction, the delivery limit, outputs, dead-letter topics. They reach the broker and the database through proxies.
//
//	driver ──▶ broker ──proxy──▶ consumer 1, consumer 2 ──proxy──▶ broker: outputs, stages, dead letters
//	                                     └──────────────proxy──▶ database: effects, keys, deliveries
//
// Meanwhile the driver kills consumers (SIGKILL), deploys new ones (start, then SIGTERM to the old), stops them for a while
// (SIGSTOP), cuts or silences their connections, kills the database, and kills the broker. On tables the database is
// the broker. A consumer that ends is started again, as a supervisor does. Then everything is healed.
//
// # The kinds
//
// A message's id names its kind; kind.go says what must become of each. Every id ends in exactly one effect, written in
// the receiver's transaction, or in a dead letter with the reason that its kind demands.
//
// # Repeating
//
// The seed gives the messages, their order, the faults, and the place of each fault in the flow of messages. What happens
// at the same time does not come from the seed, so that a failure may need several runs with the same one.
package main
