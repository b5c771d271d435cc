// Package services tells tests and examples where the real servers are: Kafka, RabbitMQ, PostgreSQL and MariaDB.
//
// An address comes from the environment (SPILLWAY_KAFKA, SPILLWAY_AMQP, SPILLWAY_POSTGRES, SPILLWAY_MYSQL), or else is
// that of the server which "make services" starts. A test without its server is skipped, but with CI=true it fails:
// there a skipped test is a hole that nobody sees. SPILLWAY_EMBEDDED=1 skips all of them, for "make check".
//
// Fault tests stop, kill and restart the servers that "make services" started, so packages that use servers must not be
// tested beside one another: "make test" runs them with go test -p 1, and a test that uses a server is not parallel.
//
// The work is done by services.sh, which this package calls; it needs bash and, to install servers, Debian's apt.
package services
