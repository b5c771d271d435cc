// Command clusters breaks nodes of real clusters while messages flow, and accounts for each message by its id.
//
//	make test-clusters
//
// It starts three Kafka brokers, three RabbitMQ nodes, a PostgreSQL with a synchronous standby, or behind PgBouncer in
// either mode, a MariaDB with a semi-synchronous replica, or three nodes of Galera, with data of their own in a
// temporary folder. Each round publishes at a steady rate to two instances of a service, breaks something, repairs it,
// and waits until each message has an effect or a letter. In a busy round campaigns and drains redrive letters
// meanwhile, messages are parked in the order of their keys, keys are purged, and the console is read.
//
// A JSON line says what is lost, doubled, stuck or out of order, which healthy messages are letters, the longest time
// without an effect, how long clients that are not ours took to be served after the repair, how long the full rate took
// to come back, and how many lines of each event the log has. The exit
// status is 1 unless all of the first five are 0.
package main
