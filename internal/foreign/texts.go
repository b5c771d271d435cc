package foreign

import "strings"

// Meaning is what an error says that has nothing but its text.
type Meaning uint

const (
	// Away is an error of a handler that means that a server is away, and not that its message is wrong.
	Away Meaning = 1 << iota
	// Passes is an error that passes with time: a breaker or limiter refuses a call, or a connection was lost.
	Passes
	// AwayForUs is an error of the library's own request that means that a server is away.
	AwayForUs
	// Unconnected is an error that follows from a connection that could not be made.
	Unconnected
	// Cut is an error of a connection that was lost under a request.
	Cut
	// Lost is an error of a connection that was lost, and does not say when.
	Lost
)

// textRow is what a sentinel of another module says. For Away and Passes the text must be all that the error says, or
// begin it if start is set. For AwayForUs and Unconnected it is anywhere in what the error says, and for Cut and Lost
// at the end, or at the beginning if start is set.
type textRow struct {
	of, text string
	start    bool
	means    Meaning
}

var textRows = []textRow{
	{"database/sql", "sql: database is closed", false, Away | AwayForUs},
	{"github.com/go-sql-driver/mysql", "invalid connection", false, Passes | AwayForUs | Cut},
	{"github.com/jackc/pgx", "conn closed", false, Lost},
	{"github.com/rabbitmq/amqp091-go", "Exception (501)", true, Cut},
	{"github.com/rabbitmq/amqp091-go", "Exception (504)", true, Lost},
	{watermillPath + "-amqp", "not connected to AMQP", false, Away | AwayForUs | Unconnected},
	{saramaPath, "kafka: client has run out of available brokers", true, Away | AwayForUs | Unconnected},
	{saramaPath, "kafka: controller is not available", false, Away | AwayForUs},
	{saramaPath, "kafka: tried to use a client that was closed", false, Away | AwayForUs},
	{saramaPath, "kafka: broker not connected", false, AwayForUs | Lost},
	{saramaPath, "kafka: message received by producer in process of shutting down", false, AwayForUs},
	{"github.com/nats-io/nats.go", "nats: no responders available for request", false, Away | AwayForUs},
	{"github.com/nats-io/nats.go", "nats: no response from stream", false, Away | AwayForUs},
	{"github.com/nats-io/nats.go", "nats: no servers available for connection", false, Away},
	{"github.com/nats-io/nats.go", "nats: connection closed", false, Away | AwayForUs},
	{"github.com/nats-io/nats.go", "nats: outbound buffer limit exceeded", false, Away}, // while it reconnects
	{"github.com/nats-io/nats.go", "nats: timeout", false, AwayForUs},
	{"github.com/redis/go-redis", "redis: client is closed", false, Away},
	{"github.com/redis/go-redis", "redis: connection pool timeout", false, AwayForUs},
	// of sony/gobreaker, so of Watermill's CircuitBreaker, and of eapache/go-resiliency
	{"github.com/sony/gobreaker", "circuit breaker is open", false, Away | Passes | AwayForUs | Unconnected},
	{"github.com/sony/gobreaker", "too many requests", false, Away | Passes}, // half open
	{"github.com/failsafe-go/failsafe-go", "circuit breaker open", false, Away | Passes},
	{"github.com/failsafe-go/failsafe-go", "bulkhead full", false, Passes},
	{"github.com/failsafe-go/failsafe-go", "rate limit exceeded", false, Passes},
	{"github.com/failsafe-go/failsafe-go", "timeout exceeded", false, Passes},
}

// Says reports whether a text is known to mean m, which is one Meaning.
func Says(text string, m Meaning) bool {
	for i := range textRows {
		if r := &textRows[i]; r.means&m != 0 && r.is(text, m) {
			return true
		}
	}
	return false
}

func (r *textRow) is(text string, m Meaning) bool {
	switch {
	case m == AwayForUs || m == Unconnected:
		return strings.Contains(text, r.text)
	case r.start:
		return strings.HasPrefix(text, r.text)
	case m == Cut || m == Lost:
		return strings.HasSuffix(text, r.text)
	}
	return text == r.text
}
