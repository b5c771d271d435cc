package foreign

import (
	"reflect"
	"strings"
	"time"
)

// Kind is a type of errors of other modules.
type Kind int

// The kinds of errors that are known.
const (
	None Kind = iota
	// Plain is an error that has nothing but its text.
	Plain
	// Traced is an error of github.com/pkg/errors, which has a stack and a text.
	Traced
	// Notified is a text around another error.
	Notified
	// Kafka has a code of Kafka's protocol.
	Kafka
	// KafkaConfig is what sarama says of a message before it sends it.
	KafkaConfig
	// KafkaEncode is a request that sarama cannot encode.
	KafkaEncode
	// KafkaDecode is an answer that sarama cannot decode.
	KafkaDecode
	// AMQP has a code of AMQP 0.9.1, and says whether the server sent it.
	AMQP
	// MySQL has a number of the server.
	MySQL
	// SQLite has a result code.
	SQLite
	// Postgres says by its severity what became of the session, such as "FATAL".
	Postgres
	// Connect is a connection that pgx could not make.
	Connect
	// RPC has a method Code, which returns the status.
	RPC
	// Permanent is not to be retried.
	Permanent
	// RetryAfter is to be retried after a time.
	RetryAfter
	// Unreadable is what a marshaler says of bytes that it cannot read.
	Unreadable
)

type knownError struct {
	Row
	kind Kind
}

const (
	saramaPath    = "github.com/IBM/sarama"
	oldSaramaPath = "github.com/Shopify/sarama"
	watermillPath = "github.com/ThreeDotsLabs/watermill"
)

var errorTypes = []knownError{
	{RowOf("", "", "errorString"), Plain}, // of package errors, and of copies of it
	{RowOf(saramaPath, "", "sentinelError", 1), Plain},
	{RowOf("github.com/nats-io/nats.go", "", "jsError", 1), Plain},
	{RowOf("github.com/pkg/errors", "", "fundamental", 1), Traced},
	{RowOf("github.com/pkg/errors", "", "withMessage", 1), Notified},

	{RowOf(saramaPath, "", "KError", 1), Kafka},
	{RowOf(saramaPath, "", "ConfigurationError", 1), KafkaConfig},
	{RowOf(saramaPath, "", "PacketEncodingError", 1), KafkaEncode},
	{RowOf(saramaPath, "", "PacketDecodingError", 1), KafkaDecode},
	{RowOf(oldSaramaPath, "", "KError", 1), Kafka},
	{RowOf("github.com/segmentio/kafka-go", "", "Error", 1), Kafka},
	{RowOf("github.com/twmb/franz-go", "pkg/kerr", "Error", 1), Kafka},

	{RowOf("github.com/rabbitmq/amqp091-go", "", "Error", 1), AMQP},
	{RowOf("github.com/streadway/amqp", "", "Error", 1), AMQP},

	{RowOf("", "", "MySQLError"), MySQL}, // of github.com/go-sql-driver/mysql, and of what is made from it
	{RowOf("modernc.org/sqlite", "", "Error", 1), SQLite},
	{RowOf("github.com/mattn/go-sqlite3", "", "Error", 1), SQLite},
	{RowOf("github.com/jackc/pgx", "pgconn", "PgError", 5), Postgres},
	{RowOf("github.com/jackc/pgconn", "", "PgError", 1), Postgres},
	{RowOf("github.com/lib/pq", "", "Error", 1), Postgres},
	{RowOf("github.com/jackc/pgx", "pgconn", "ConnectError", 5), Connect},
	{RowOf("github.com/jackc/pgconn", "", "connectError", 1), Connect}, // of pgx v4

	{RowOf("connectrpc.com/connect", "", "Error", 1), RPC},
	{RowOf("github.com/cenkalti/backoff", "", "PermanentError", 3, 4, 5), Permanent},
	{RowOf("github.com/cenkalti/backoff", "", "RetryAfterError", 5), RetryAfter},
	{RowOf("google.golang.org/protobuf", "internal/errors", "prefixError", 1), Unreadable},
	{RowOf("google.golang.org/protobuf", "internal/errors", "wrapError", 1), Unreadable},
	{RowOf(watermillPath, "components/cqrs", "NoProtoMessageError", 1), Unreadable},
}

var errorsNamed = func() map[string][]*knownError {
	named := map[string][]*knownError{}
	for i := range errorTypes {
		known := &errorTypes[i]
		named[known.name] = append(named[known.name], known)
	}
	return named
}()

// Error is an error of a known type.
type Error struct {
	Kind  Kind
	known *knownError
	v     reflect.Value
	err   error
}

// ErrorOf returns what is known of the type of err, and not of what err wraps. Its Kind is None for another type.
func ErrorOf(err error) Error {
	v := reflect.ValueOf(err)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if !v.IsValid() {
		return Error{}
	}
	for _, known := range errorsNamed[v.Type().Name()] {
		if known.Is(v.Type()) {
			return Error{known.kind, known, v, err}
		}
	}
	return Error{}
}

func (e Error) view() View { return View{Row: &e.known.Row, Value: e.v} }

// Code returns the code or number of an error, or 0. SQLite's is the primary code.
func (e Error) Code() (code int64) {
	own, ok := e.err.(interface{ Code() int })
	switch e.Kind {
	case MySQL: // a type of any module, so the shape must be the driver's
		if number, is := e.view().Field(reflect.Value.CanUint, "Number"); is {
			code = int64(number.Uint())
		}
	case Kafka, AMQP, SQLite:
		switch {
		case ok:
			code = int64(own.Code())
		case e.v.CanInt(): // the error itself is a number
			code = e.v.Int()
		default:
			code = e.view().Int("Code")
		}
	}
	if e.Kind == SQLite { // the low byte (sqlite.org/rescode.html)
		code &= 0xff
	}
	return code
}

// ByServer reports whether the server sent an AMQP error. The client makes others itself.
func (e Error) ByServer() bool { return e.Kind == AMQP && e.view().Bool("Server") }

// Text returns what an error of AMQP or KafkaEncode gives as its reason, and the severity of one of Postgres.
func (e Error) Text() string {
	switch e.Kind {
	case AMQP:
		return e.view().Text("Reason")
	case KafkaEncode:
		return e.view().Text("Info")
	case Postgres:
		return e.view().Text("Severity")
	}
	return ""
}

// Wait returns the time of a RetryAfter.
func (e Error) Wait() time.Duration {
	if e.Kind != RetryAfter {
		return 0
	}
	return e.view().Duration("Duration")
}

// Listed returns the errors of a list such as sarama.ProducerErrors: a slice of pointers to structs with a field Err.
func Listed(err error) (errs []error) {
	list := reflect.ValueOf(err)
	if list.Kind() != reflect.Slice || list.Type().Elem().Kind() != reflect.Pointer {
		return nil
	}
	for i := range min(list.Len(), maxListed) {
		item := list.Index(i).Elem() // the zero Value of a nil pointer
		if item.Kind() != reflect.Struct {
			continue
		}
		if field := item.FieldByName("Err"); field.IsValid() && field.CanInterface() {
			if inner, ok := field.Interface().(error); ok {
				errs = append(errs, inner)
			}
		}
	}
	return errs
}

const maxListed = 100

// Meaning is what an error says that has nothing but its text.
type Meaning uint

const (
	// Unavailable is an error of a handler that means that a server is unavailable, and not that its message is wrong.
	Unavailable Meaning = 1 << iota
	// Passes is an error that passes with time: a breaker or limiter refuses a call, or a connection was lost.
	Passes
	// UnavailableForUs is an error of the library's own request that means that a server is unavailable.
	UnavailableForUs
	// Unconnected is an error that follows from a connection that could not be made.
	Unconnected
	// Cut is an error of a connection that was lost under a request.
	Cut
	// Lost is an error of a connection that was lost, and does not say when.
	Lost
	// Refuses is an error of a client or marshaler that refuses a message for its metadata.
	Refuses
)

// textRow is what a sentinel of another module says. For Unavailable and Passes the text must be all that the error
// says, or begin it if start is set. For UnavailableForUs, Unconnected and Refuses it is anywhere in what the error
// says, and for Cut and Lost at the end, or at the beginning if start is set.
type textRow struct {
	of, text string
	start    bool
	means    Meaning
}

var textRows = []textRow{
	{"database/sql", "sql: database is closed", false, Unavailable | UnavailableForUs},
	{"github.com/go-sql-driver/mysql", "invalid connection", false, Passes | UnavailableForUs | Cut},
	{"github.com/jackc/pgx", "conn closed", false, Lost},
	{"github.com/rabbitmq/amqp091-go", "Exception (501)", true, Cut},
	{"github.com/rabbitmq/amqp091-go", "Exception (504)", true, Lost},
	{watermillPath + "-amqp", "not connected to AMQP", false, Unavailable | UnavailableForUs | Unconnected},
	{saramaPath, "kafka: client has run out of available brokers", true, Unavailable | UnavailableForUs | Unconnected},
	{saramaPath, "kafka: controller is not available", false, Unavailable | UnavailableForUs},
	{saramaPath, "kafka: tried to use a client that was closed", false, Unavailable | UnavailableForUs},
	{saramaPath, "kafka: broker not connected", false, UnavailableForUs | Lost},
	{saramaPath, "kafka: message received by producer in process of shutting down", false, UnavailableForUs},
	{"github.com/nats-io/nats.go", "nats: no responders available for request", false, Unavailable | UnavailableForUs},
	{"github.com/nats-io/nats.go", "nats: no response from stream", false, Unavailable | UnavailableForUs},
	{"github.com/nats-io/nats.go", "nats: no servers available for connection", false, Unavailable},
	{"github.com/nats-io/nats.go", "nats: connection closed", false, Unavailable | UnavailableForUs},
	{"github.com/nats-io/nats.go", "nats: outbound buffer limit exceeded", false, Unavailable}, // while it reconnects
	{"github.com/nats-io/nats.go", "nats: timeout", false, UnavailableForUs},
	{"github.com/nats-io/nats.go", "nats: message could not decode headers", false, Refuses}, // since v1.53 it refuses names
	{watermillPath + "-kafka", "is reserved by watermill for message UUID", false, Refuses},  // and watermill-redisstream
	{"github.com/redis/go-redis", "redis: client is closed", false, Unavailable},
	{"github.com/redis/go-redis", "redis: connection pool timeout", false, UnavailableForUs},
	// of sony/gobreaker, so of Watermill's CircuitBreaker, and of eapache/go-resiliency
	{"github.com/sony/gobreaker", "circuit breaker is open", false, Unavailable | Passes | UnavailableForUs | Unconnected},
	{"github.com/sony/gobreaker", "too many requests", false, Unavailable | Passes}, // half open
	{"github.com/failsafe-go/failsafe-go", "circuit breaker open", false, Unavailable | Passes},
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
	case m == UnavailableForUs || m == Unconnected || m == Refuses:
		return strings.Contains(text, r.text)
	case r.start:
		return strings.HasPrefix(text, r.text)
	case m == Cut || m == Lost:
		return strings.HasSuffix(text, r.text)
	}
	return text == r.text
}
