// Package services returns the addresses of the real servers for tests and examples: Kafka, RabbitMQ, Redis,
// PostgreSQL, MariaDB and NATS. Prometheus is particular: what needs one starts its own with StartPrometheus, as its
// configuration says what it watches.
//
// An address comes from the environment (SPILLWAY_KAFKA, SPILLWAY_AMQP, SPILLWAY_REDIS, SPILLWAY_POSTGRES,
// SPILLWAY_MYSQL, SPILLWAY_NATS), or else is that of the server which "make services" starts. A test without its server
// is skipped, but with CI=true it fails: there a skipped test is a hole in the tests. SPILLWAY_EMBEDDED=1 skips all of
// them, for "make check".
//
// Fault tests stop, kill and restart the servers that "make services" started. So packages whose tests do that must not
// be tested beside packages that use the same servers. "make test" has three lanes, each with servers of its own: the
// folder and the ports of a lane are in SPILLWAY_SERVICES_DIR, SPILLWAY_POSTGRES_PORT and SPILLWAY_MYSQL_PORT.
//
// The work is done by services.sh, which this package calls. It needs bash and, to install servers, Debian's apt. The
// NATS server is a Go module: services.sh builds it, outside this module's go.mod.
package services
