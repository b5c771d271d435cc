// Package footprint counts what this process holds open: sockets to a server, and goroutines by who started them. Its
// tests hold the cost of retry stages on Kafka and RabbitMQ.
package footprint
