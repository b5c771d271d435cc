// Command clusters breaks nodes of real clusters while messages flow, and accounts for each message by its id.
//
//	make test-clusters
//
// It starts three Kafka brokers, three RabbitMQ nodes, or a PostgreSQL with a synchronous standby, with data of their own
// in a temporary folder. Each round publishes at a steady rate to two instances of a service, breaks something, repairs
// it, and waits until each message has an effect or a letter. It prints a JSON line: what is lost, doubled or stuck,
// which healthy messages are letters, the longest time without an effect, and how long the full rate took to come back.
// The exit status is 1 if a message is lost, doubled, stuck, or a healthy letter.
package main
