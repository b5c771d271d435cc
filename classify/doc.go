// Package classify says what an error means for the message that failed with it: whether to try again, to set the
// message aside, to drop it, or to ask nobody and be careful.
//
// # Classes
//
// A Class is what can be done. Transient and unknown errors are retried; permanent and invalid ones are set aside at
// once, invalid ones among the malformed messages; a discarded message is acked, counted and kept nowhere. A Verdict is
// the class with a reason for programs, a description for people and the least time to wait before the next attempt.
//
// ClassAborted means that the message went away, by a shutdown, a rebalance or a lost session. It is decided from the
// message's own context by whoever holds the message, and never from an error: no mark, rule or default can give it,
// and a context.Canceled in an error is something within the handler that was cancelled, which is transient.
//
// NotNow is for a handler that finds a lock held, a breaker open or a tenant paused. Its error is transient, and says in
// addition that nothing failed: the message is held, or given back, and comes again uncounted, for a bounded time.
//
// # Who speaks
//
// A handler marks what it knows (Transient, NotNow, Permanent, Invalid, Discard, With), and the mark survives any wrapping with
// %w. What third parties return is told by rules (Is, As, AsFunc, When) in a Config, or is known already.
//
// # Precedence
//
// Classify asks, in this order, and goes on only while no class is named:
//
//  1. The marks in the whole tree of causes and joined errors. A Failure counts as a mark.
//  2. The rules in order. The first that answers is the only one heard, even when it leaves the class open. A rule sees
//     the whole error, and what it says of one of several joined errors it says of all.
//  3. The built-in knowledge, over the whole tree; then what only the network explains.
//  4. Config.Default.
//
// On a chain of causes the outermost answer wins. Where errors are joined, by errors.Join or by several %w, every branch
// is asked and the severest class wins: invalid, permanent, transient, unknown, discard. The branch that wins is heard
// whole, and the others not at all. A branch without a mark counts as unknown, so an error joined to a discarded one
// is not dropped with it; a Discard around the join drops both.
//
// Reason, description and retry-after are filled each on its own, and what is said first stays: each is that of the
// outermost mark on the chain that sets it, then of the rule, then of the knowledge. Who is not asked any more,
// because a class is named, fills nothing.
//
// # Panics
//
// A panic in a handler is a *PanicError, which is permanent. It does not unwrap to the value thrown: a panic is a bug,
// even a panic with a marked error. A mark around it, or a rule As[*PanicError], may judge it otherwise.
//
// A rule that panics has no say, and the next one is asked; where a method of the error panics, that error alone has no
// say. Config.OnRulePanic is told of both. An error that wraps itself is searched up to a bound, and rules are not asked
// of it, because errors.Is would never return.
//
// # Built-in knowledge
//
//	context            Canceled, DeadlineExceeded: transient
//	net, os, net/http  timeouts, refused, reset, closed, DNS, EOF of an HTTP client: transient; bad addresses: permanent
//	syscall            connection, resource and input/output errors: transient; EACCES, EPERM, EINVAL...: permanent
//	database/sql       ErrConnDone, ErrTxDone, driver.ErrBadConn: transient; ErrNoRows: unknown
//	SQLSTATE           classes 08 40 53 55 57 58 and 25006: transient; 21 22 23 42 44 54: permanent; 23503: unknown
//	MySQL, MariaDB     deadlock, lock wait, shutdown, read-only, too many...: transient; duplicate, syntax, data: permanent
//	SQLite             busy, locked, full, input/output...: transient; constraint, mismatch, too big, read-only: permanent
//	cenkalti/backoff   Permanent: permanent; RetryAfter: transient, with its wait
//	breakers, limits   an open breaker or a full limit of sony/gobreaker, failsafe-go, Watermill's CircuitBreaker: transient
//	encoding/json      syntax and type errors of the input: invalid; misuse and failed encoding: permanent
//	panics             permanent, with ReasonPanic
//
// The sources are the documentation of Go's standard library, PostgreSQL's Appendix A, MySQL's Server Error Message
// Reference, MariaDB's list of error codes and sqlite.org/rescode.html. No driver is imported: an error with a method
// SQLState() string, as those of pgx and lib/pq are, and the error types of go-sql-driver/mysql and modernc.org/sqlite
// are known by their shape, those of cenkalti/backoff by their type's name and package, and sentinels of breakers by their text,
// since they have nothing else. Whatever is not in the table is unknown, and so is retried before it is set aside.
package classify
