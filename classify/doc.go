// Package classify decides what an error means for the message that failed with it: retry, dead-letter, or drop.
//
// # Classes
//
// A Class says what happens to the message:
//
//	transient, unknown   retried; dead-lettered after the last attempt
//	permanent            dead-lettered at once
//	invalid              dead-lettered at once, among the malformed messages
//	discard              acked, counted and kept nowhere
//	aborted              nacked and not counted
//
// A Verdict is the class with a reason for programs, a description for people and the minimum wait before the next
// attempt.
//
// ClassAborted means that the message's own context ended, by a shutdown, a rebalance or a lost session. Only that
// context decides it: no mark, rule or default can. A context.Canceled in an error is transient, because something
// within the handler was cancelled.
//
// NotNow is for a handler that finds a lock held, a breaker open or a tenant paused. Its error is transient, and no
// failure: the message is held or nacked, and comes again without being counted, for a bounded time.
//
// # Unavailable
//
// Unavailable is for an error that is not about the message: something that the handler needs is unavailable, such as a
// database or a service. Its error is transient. A breaker holds messages after it, where a transient error alone can
// be the message's own. Built-in knowledge sets Unavailable if no connection was made, or if the server says that it
// serves no request:
//
//	net            connection refused, host or network unreachable, unknown host of a dial
//	PostgreSQL     08xxx except 08007, 08P01 only if it ended the connection, 25006, 28000, 28P01, 53300,
//	               57P01 to 57P03, 57P05; 26000 and 42P05, which a pooler causes, with the remedy as description; pgx's ConnectError
//	MySQL          1040, 1045, 1047, 1053, 1129, 1130, 1203, 1290, 1836, 3032; 2002, 2003, 2006, 2013 and 9001 of proxies
//	database/sql   driver.ErrBadConn
//	Kafka          no brokers, no leader, no coordinator, too few replicas
//	AMQP           connection closed by the operator, or closed before the request
//	NATS, Redis    no responders, no servers; LOADING, CLUSTERDOWN, MASTERDOWN
//	gRPC, Connect  the code unavailable
//	HTTP           429 or 503 of an error with the methods StatusCode() int, or HTTPStatusCode(), and
//	               RetryAfter() time.Duration
//	breakers       an open or half-open breaker
//
// Time-outs are not unavailable, because one message can be slow. Neither are connections that were lost under a
// request, because the request can have caused the loss. A mark or rule that names the class decides Unavailable too:
// Transient(err) says that an error is not unavailable.
//
// # Messages that cannot be read
//
// The errors of a marshaler about bytes that it cannot read are invalid, and so are those of Watermill's components
// about messages that they do not know:
//
//	JSON           syntax, a value of another type, base64 and times in fields of these types
//	protobuf       all errors of google.golang.org/protobuf; those of gogo and golang/protobuf
//	cqrs           an event of an unknown type, if AckOnUnknownEvent is false; NoProtoMessageError
//	forwarder      an envelope that is no JSON, or has no topic
//
// A bare io.ErrUnexpectedEOF is unknown, because a connection can be its cause too. gogo says so of a message that is
// cut off, and ProtobufMarshaler with DisableStdProtoFallback: wrap it with Invalid.
//
// # Too large
//
// A publisher that refuses a message for its size wraps ErrTooLarge, which is permanent. Classifier.IsTooLarge is the
// one place that decides it, for letters, stages, the delay store, outputs and redrives: by ErrTooLarge, by a rule with
// Verdict.TooLarge, or by built-in knowledge of clients.
//
// # Marks and rules
//
// A handler marks the errors that it knows with Transient, Unavailable, NotNow, Permanent, Invalid or Discard. A mark
// survives any wrapping with %w. Errors of third parties are judged by the rules in a Config, and by built-in
// knowledge. A rule is Is for a sentinel, As for an error type, or a function of your own.
//
// # Precedence
//
// Classify asks, in this order, and goes on only while no class is named:
//
//  1. The marks in the whole tree of causes and joined errors. A Failure counts as a mark.
//  2. The rules in order. After the first answer no other rule is asked, even if the answer leaves the class open. A rule
//     sees the whole error, so its answer for one of several joined errors holds for all of them.
//  3. The built-in knowledge, over the whole tree; then what only the network explains.
//  4. Config.Default.
//
// On a chain of causes the outermost answer wins. If errors are joined, by errors.Join or by several %w, every branch
// is judged and the severest class wins: invalid, permanent, transient, unknown, discard. The verdict is that of the
// winning branch alone. A branch without a mark counts as unknown, so an error joined to a discarded one is not dropped
// with it. A Discard around the join drops both.
//
// Reason, description and retry-after are filled separately, and the first value stays. The outermost mark on the chain
// comes first, then the rule, then the knowledge. Sources that are not consulted, because a class is known, contribute
// nothing.
//
// # Panics
//
// A panic in a handler is a *PanicError, which is permanent. It does not unwrap to the value of the panic: a panic is a
// bug, even with a marked error. A mark around it, or a rule As for *PanicError, may judge it otherwise.
//
// A rule that panics has no answer, and the next rule is asked. If a method of an error panics, that error has no
// answer. Config.OnRulePanic is called for both. An error that wraps itself is searched up to a bound. Rules do not see
// it, because errors.Is would never return.
//
// # Built-in knowledge
//
//	context            Canceled, DeadlineExceeded: transient
//	net, os, net/http  timeouts, refused, reset, closed, DNS, EOF of an HTTP client: transient; bad addresses: permanent
//	syscall            connection, resource and input/output errors: transient; EACCES, EPERM, EINVAL...: permanent
//	database/sql       ErrConnDone, ErrTxDone, driver.ErrBadConn: transient; ErrNoRows: unknown
//	SQLSTATE           classes 08 40 53 55 57 58 and 25006 25P03 25P04 26000 42P05: transient;
//	                   21 22 23 42 44 54: permanent; 23503: unknown
//	MySQL, MariaDB     deadlock, lock wait, shutdown, read-only, too many...: transient;
//	                   duplicate, syntax, data: permanent
//	SQLite             busy, locked, full, input/output...: transient;
//	                   constraint, mismatch, too big, read-only: permanent
//	cenkalti/backoff   Permanent: permanent; RetryAfter: transient, with its wait
//	brokers, Redis     what is unavailable: transient
//	HTTP, gRPC         statuses that pass with time, of errors that carry one: transient
//	breakers, limits   an open breaker or a full limit of sony/gobreaker, failsafe-go, Watermill's CircuitBreaker:
//	                   transient
//	ErrTooLarge        permanent; MySQL's 1153 and 1118, and PostgreSQL's 54000, too
//	encoding/json      syntax and type errors of the input: invalid; misuse and failed encoding: permanent
//	panics             permanent, with ReasonPanic
//
// The sources are the documentation of Go's standard library, PostgreSQL's Appendix A, MySQL's Server Error Message
// Reference, MariaDB's list of error codes and sqlite.org/rescode.html. No driver is imported. An error with a method
// SQLState() string, such as that of pgx or lib/pq, is known by its shape. So are the error types of
// go-sql-driver/mysql and modernc.org/sqlite. Errors of cenkalti/backoff are known by their type's name and package.
// Sentinels of breakers are known by their text, since they have nothing else. Every other error is unknown: it is
// retried, and then dead-lettered.
package classify
