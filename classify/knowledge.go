package classify

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/errs"
	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

// askKnowledge judges one error, not its causes, by what the standard library and the databases say of it.
func askKnowledge(err error) (Verdict, bool) {
	if v, ok := askUnavailable(err); ok {
		return v, true
	}
	if v, ok := askMessage(err); ok {
		return v, true
	}
	switch e := err.(type) {
	case *PanicError:
		return Verdict{Class: ClassPermanent, Reason: ReasonPanic, Description: e.nilTx()}, true
	case *json.InvalidUnmarshalError, *json.UnsupportedTypeError, *json.UnsupportedValueError, *json.MarshalerError:
		return permanent, true
	case syscall.Errno:
		return askErrno(e)
	case *net.AddrError, *net.ParseError, net.InvalidAddrError, net.UnknownNetworkError:
		return permanent, true
	case *net.OpError, *url.Error: // their causes say more, and their Timeout methods recur where one wraps itself
		return Verdict{}, false
	case *net.DNSError:
		return transient, true
	}
	if err == ErrTooLarge {
		return Verdict{Class: ClassPermanent, TooLarge: true}, true
	}
	if slices.Contains(transientSentinels, err) { // one node of the tree is judged here, not its causes
		return transient, true
	}
	if v, ok := askDatabase(err); ok {
		return v, true
	}
	if v, ok := askStatus(err); ok {
		return v, true
	}
	if v, ok := askRetry(err); ok {
		return v, true
	}
	if e, ok := err.(net.Error); ok && e.Timeout() {
		return transient, true
	}
	return Verdict{}, false
}

// askNetwork is asked if no cause gave a class: a wrong address or a refused permission shows inside a net.OpError, and
// what is left is the network's weather. If no connection was made, the server is unavailable. A connection closed
// early shows as a bare EOF, which means that only inside the error of an HTTP client.
func askNetwork(err error) (Verdict, bool) {
	switch e := err.(type) {
	case *net.OpError:
		if e.Op == "dial" && !isCancelled(e.Err) {
			return unavailable, true
		}
		return transient, true
	case *url.Error:
		near := judgement{left: 16} // few, because each link of a long chain may be such an error
		return near.tree(e.Err, askEOF, stopAtFirst)
	}
	if foreign.ErrorOf(err).Kind != foreign.Connect {
		return Verdict{}, false
	}
	near := judgement{left: 16}
	if v, ok := near.tree(errors.Unwrap(err), askNetwork, stopAtFirst); ok {
		return v, true
	}
	return unavailable, true
}

// isCancelled reports whether package net says in its own words that a context was cancelled.
func isCancelled(err error) bool {
	e, ok := err.(interface{ Is(error) bool })
	return ok && e.Is(context.Canceled)
}

func askEOF(err error) (Verdict, bool) { return transient, err == io.EOF || err == io.ErrUnexpectedEOF }

var (
	transient = Verdict{Class: ClassTransient}
	permanent = Verdict{Class: ClassPermanent}
)

// transientSentinels leaves out sql.ErrNoRows on purpose: it is unknown whether the row is on its way. A cancelled
// context is something within the handler that was cancelled; the end of the message's own is ClassAborted.
var transientSentinels = []error{
	context.Canceled, context.DeadlineExceeded, os.ErrDeadlineExceeded, net.ErrClosed,
	sql.ErrConnDone, sql.ErrTxDone, driver.ErrBadConn,
}

func askErrno(e syscall.Errno) (Verdict, bool) {
	switch e {
	case syscall.EACCES, syscall.EPERM, syscall.EINVAL, syscall.ENAMETOOLONG, syscall.ENOSYS, syscall.ENOTDIR, syscall.EISDIR,
		syscall.EAFNOSUPPORT:
		return permanent, true
	case syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, syscall.ETIMEDOUT, syscall.EHOSTUNREACH,
		syscall.EHOSTDOWN, syscall.ENETUNREACH, syscall.ENETDOWN, syscall.ENETRESET, syscall.ENOTCONN, syscall.ENOBUFS,
		syscall.EAGAIN, syscall.EINTR, syscall.EBUSY, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOSPC,
		syscall.EIO:
		return transient, true
	}
	return transient, e.Timeout() || e.Temporary()
}

// unavailable is the verdict on an error that is about something the handler needs, and not about the message.
var unavailable = Verdict{Class: ClassTransient, Unavailable: true}

// askUnavailable judges one error that says that a server was not reached, or serves no request. A connection that was
// lost under a request is not among these: the request can have caused the loss.
func askUnavailable(err error) (Verdict, bool) {
	switch e := err.(type) {
	case syscall.Errno:
		return unavailable, unavailableErrnos[e]
	case *net.OpError: // a name that a handler looks up itself can come from the message; a name that it dials seldom does
		dns, ok := e.Err.(*net.DNSError)
		return unavailable, ok && e.Op == "dial" && isUnavailableHost(dns)
	case interface{ SQLState() string }:
		return askSession(err, e.SQLState())
	case interface{ RedisError() }:
		word, _, _ := strings.Cut(err.Error(), " ")
		return unavailable, word == "LOADING" || word == "CLUSTERDOWN" || word == "MASTERDOWN"
	}
	if err == driver.ErrBadConn {
		return unavailable, true
	}
	return unavailable, isUnavailableKind(foreign.ErrorOf(err), err)
}

var unavailableErrnos = map[syscall.Errno]bool{
	syscall.ECONNREFUSED: true, syscall.EHOSTUNREACH: true, syscall.EHOSTDOWN: true, syscall.ENETUNREACH: true,
	syscall.ENETDOWN: true,
}

// askSession judges a SQLSTATE of PostgreSQL that speaks of the session, and not of the statement.
func askSession(err error, state string) (Verdict, bool) {
	switch state {
	case "42P05", "26000": // a prepared statement is there already, or is not there
		return Verdict{Class: ClassTransient, Unavailable: true,
			Description: "a prepared statement is of another session, as " +
				"behind a pooler in transaction mode: add default_query_exec_mode=exec to the address of the database (pgx), or " +
				"let the pooler keep prepared statements: " +
				boundedtext.Error(err, 1<<10)}, true
	case "08P01": // a pooler says so of itself and ends the connection; PostgreSQL says so of a message, and does not
		return unavailable, foreign.ErrorOf(err).Text() == "FATAL" // which ended the connection
	}
	return unavailable, unavailableState(state)
}

// unavailableState reports whether a SQLSTATE of PostgreSQL means that the server serves no sessions, or takes no
// writes.
func unavailableState(state string) bool {
	switch state {
	case "25006", // read-only: a failover is under way
		"28000", "28P01", // the role or the password is refused, which PostgreSQL says of connections alone
		"53300",                   // too many connections
		"57P01", "57P02", "57P03", // shutdown, crash of another session, cannot connect now
		"57P05": // the session was idle for too long
		return true
	case "08007": // unknown whether the transaction was committed
		return false
	}
	return len(state) == 5 && state[:2] == "08"
}

var unavailableMySQL = map[int64]bool{
	1040: true, 1203: true, // too many connections
	1045: true, 1129: true, 1130: true, // user, blocked host or unknown host may not connect
	1047: true,             // Galera: node not ready
	1053: true,             // shutdown in progress
	1290: true, 1836: true, // read-only: a failover is under way
	2002: true, 2003: true, 2006: true, 2013: true, 9001: true, // a proxy cannot reach its server
	3032: true, // offline mode
}

// unavailableKafka are the codes of Kafka's protocol for brokers that are unavailable or starting, and for too few
// replicas.
var unavailableKafka = map[int64]bool{5: true, 8: true, 9: true, 14: true, 15: true, 19: true, 20: true}

// isUnavailableKind judges the errors of clients.
func isUnavailableKind(e foreign.Error, err error) bool {
	switch code := e.Code(); e.Kind {
	case foreign.Plain, foreign.Traced:
		return foreign.Says(err.Error(), foreign.Unavailable)
	case foreign.MySQL:
		return unavailableMySQL[code]
	case foreign.Connect: // pgx looks names up itself
		return namesNoHost(err)
	case foreign.Kafka:
		return unavailableKafka[code]
	case foreign.AMQP: // the server forced the connection to close, or the client had none
		return code == 320 || code == 504 && !e.ByServer()
	}
	return false
}

func namesNoHost(err error) bool {
	for one := range errs.All(err) {
		if dns, ok := one.(*net.DNSError); ok && isUnavailableHost(dns) {
			return true
		}
	}
	return false
}

// isUnavailableHost reports whether the name of a server is not known, or no name server answers for it.
func isUnavailableHost(e *net.DNSError) bool {
	return e != nil && (e.IsNotFound || e.IsTemporary) && !e.IsTimeout
}

var (
	unreadable  = Verdict{Class: ClassInvalid, Reason: ReasonUnmarshal}
	unknownType = Verdict{Class: ClassInvalid}
)

// askMessage judges what marshalers and Watermill's components say of a message that they cannot read, or do not know,
// without importing one. Some of them have no type and no sentinel. Then the text decides, and a test with the real
// component compares it.
func askMessage(err error) (Verdict, bool) {
	switch err.(type) {
	case *json.SyntaxError, *json.UnmarshalTypeError:
		return unreadable, true
	case base64.CorruptInputError, *time.ParseError: // of fields that JSON holds as texts
		return unreadable, true
	case interface{ RequiredNotSet() bool }, interface{ InvalidUTF8() bool }: // of gogo, and of golang/protobuf
		return unreadable, true
	}
	switch foreign.ErrorOf(err).Kind {
	case foreign.Unreadable:
		return unreadable, true
	case foreign.Traced: // of a forwarder's envelope
		return unreadable, err.Error() == "unknown destination topic"
	case foreign.Plain:
		return askMessageText(err.Error())
	}
	return Verdict{}, false
}

// askMessageText judges an error that has nothing but its text.
func askMessageText(text string) (Verdict, bool) {
	if rest, ok := strings.CutPrefix(text, "received unexpected event type "); ok { // cqrs.EventProcessor
		return unknownType, strings.Contains(rest, ", expected ")
	}
	if strings.HasPrefix(text, "no handler found for event ") { // cqrs.EventGroupProcessor
		return unknownType, true
	}
	if strings.HasPrefix(text, "github.com/gogo/protobuf/proto panic") { // ProtobufMarshaler
		return unreadable, true
	}
	rest, ok := strings.CutPrefix(text, "proto: ")
	if !ok {
		return Verdict{}, false
	}
	if slices.ContainsFunc(gogoStarts, func(start string) bool { return strings.HasPrefix(rest, start) }) {
		return unreadable, true
	}
	if _, said, ok := strings.Cut(rest, ": "); ok { // behind the name of a type
		return unreadable, strings.HasPrefix(said, "illegal tag ") || strings.HasPrefix(said, "wiretype end group ")
	}
	return Verdict{}, false
}

// gogoStarts are the beginnings of what gogo, and golang/protobuf before 1.4, say of bytes that they cannot read.
var gogoStarts = []string{
	"illegal wireType ", "wrong wireType = ", "negative length found during unmarshaling", "integer overflow",
	"unexpected end of group", "bad wiretype for map field", "can't skip unknown wire type ",
	"internal error: bad wiretype",
}
