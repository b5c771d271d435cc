package classify_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/cenkalti/backoff/v4"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

var (
	unknown     classify.Verdict
	transient   = classify.Verdict{Class: classify.ClassTransient}
	unavailable = classify.Verdict{Class: classify.ClassTransient, Unavailable: true}
	lasting     = classify.Verdict{Class: classify.ClassPermanent}
)

// judges fails unless each error is judged so bare, below layers, and beside an unknown error. Descriptions are for
// people.
func judges(t *testing.T, want classify.Verdict, errs ...error) {
	t.Helper()
	for i, err := range errs {
		testkit.Require(t, err != nil, "no error at %d", i)
		for _, err := range []error{err, wrap(err, 3), errors.Join(errPlain, err)} {
			got := judge(err)
			got.Description = ""
			testkit.Check(t, got == want, "%d: %+v, want %+v: %T %v", i, got, want, err, err)
		}
	}
}

var errPlain = errors.New("plain")

// pqError is shaped like those of lib/pq: a value.
type pqError struct{ Code string }

func (e pqError) Error() string    { return "pq: " + e.Code }
func (e pqError) SQLState() string { return e.Code }

// states are errors of pgx and of lib/pq with these SQLSTATEs, and numbers errors of MySQL.
func states(codes ...string) (errs []error) {
	for _, code := range codes {
		errs = append(errs, &pgconn.PgError{Code: code}, pqError{code})
	}
	return errs
}

func numbers(all ...uint16) (errs []error) {
	for _, n := range all {
		errs = append(errs, &mysql.MySQLError{Number: n})
	}
	return errs
}

// Features C4, C7: databases, by SQLSTATE, its class and the numbers of MySQL and MariaDB.
func TestKnowledgeDatabases(t *testing.T) {
	judges(t, unavailable, states("57P01", "57P02", "57P03", "57P05", "08001", "08006", "53300", "25006", "28P01", "42P05",
		"26000")...)
	judges(t, unavailable, numbers(1040, 1045, 1053, 1290, 2003, 2006, 2013, 9001)...)
	judges(t, unavailable, driver.ErrBadConn,
		&pgconn.PgError{Severity: "FATAL", Code: "08P01", Message: "query_wait_timeout"}) // of a pooler
	judges(t, transient, states("40001", "40P01", "55P03", "57014", "25P03", "25P04", "08P01", "08007", "53100")...)
	judges(t, transient, numbers(1213, 1205, 3572, 1969, 1020, 1613, 1614, 3101)...)
	judges(t, lasting, states("40002", "23505", "23502", "22P02", "42P01")...)
	judges(t, lasting, numbers(1062, 1064, 1146, 1153, 1118, 1406, 4025)...)
	judges(t, unknown, states("23503", "0A000", "25P02", "XX000", "P0001", "", "4", "40", "400011", "\x00\xff\xff")...)
	judges(t, unknown, numbers(1452, 0, 65535)...)
	type MySQLError struct{ error } // of the same name, but nothing of the shape
	judges(t, unknown, &MySQLError{errSentinel}, (*pgconn.PgError)(nil), (*mysql.MySQLError)(nil))
	for _, err := range states("42P05", "26000") { // of a pooler: the description names the remedy, and keeps the error
		v := judge(wrap(err, 1))
		testkit.Check(t, strings.Contains(v.Description, "default_query_exec_mode=exec") &&
			strings.Contains(v.Description, err.Error()), "%v is described as %q", err, v.Description)
		testkit.Equal(t, "own", judge(classify.With(err, classify.Description("mine"))).Description, "mine")
	}
}

func dial(cause error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: cause} }

// Features C4, C7: contexts, the operating system and the network, as packages os and net wrap them. No connection is
// away; one that was lost under a request, or that took long, may be the message's own doing.
func TestKnowledgeNet(t *testing.T) {
	unknownHost := &net.DNSError{Err: "no such host", Name: "db", IsNotFound: true}
	judges(t, unavailable, dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), dial(syscall.EHOSTUNREACH),
		syscall.ECONNREFUSED, syscall.ENETUNREACH, dial(os.NewSyscallError("connect", syscall.ENOENT)),
		dial(unknownHost), dial(&net.DNSError{Err: "server misbehaving", IsTemporary: true}))
	judges(t, transient, context.DeadlineExceeded, context.Canceled, errTimeout{}, dial(os.ErrDeadlineExceeded),
		dial(context.Canceled), dial(&net.DNSError{Err: "i/o timeout", IsTimeout: true}), unknownHost,
		&net.OpError{Op: "read", Err: syscall.ECONNRESET}, &net.OpError{Op: "read", Err: errors.New("no such luck")})
	for errno, want := range map[syscall.Errno]classify.Verdict{
		syscall.EPIPE: transient, syscall.ENOSPC: transient, syscall.EAGAIN: transient, syscall.EMFILE: transient,
		syscall.EACCES: lasting, syscall.EINVAL: lasting, syscall.EISDIR: lasting, syscall.ENOENT: unknown,
	} {
		judges(t, want, errno, &os.PathError{Op: "open", Path: "x", Err: errno}, os.NewSyscallError("write", errno))
	}
	judges(t, lasting, dial(&net.AddrError{Err: "missing port"}),
		&net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EACCES)})
	judges(t, unknown, (*net.OpError)(nil), io.EOF) // of a file it is no weather
}

// errRedis is shaped like the errors of go-redis.
type errRedis string

func (e errRedis) Error() string { return string(e) }
func (errRedis) RedisError()     {}

// Error has a name that client libraries use too.
type Error struct{ Code string }

func (e *Error) Error() string { return e.Code }

type permanentError struct{ error }

// Features C4, C7: clients of brokers, and libraries for retries, breakers and limits. Marks outrank them, and errors
// of other packages with such names or texts are not theirs.
func TestKnowledgeClients(t *testing.T) {
	judges(t, unavailable, sarama.ErrOutOfBrokers, sarama.Wrap(sarama.ErrOutOfBrokers, io.EOF), sarama.ErrLeaderNotAvailable,
		sarama.ErrNotEnoughReplicas, amqp091.ErrClosed, &amqp091.Error{Code: amqp091.ConnectionForced, Server: true},
		errors.New("not connected to AMQP"), errors.New("nats: no responders available for request"),
		errRedis("LOADING Redis is loading the dataset in memory"), errors.New("circuit breaker open"),
		classify.Unavailable(errPlain))
	judges(t, transient, errors.New("bulkhead full"), errors.New("rate limit exceeded"), errors.New("timeout exceeded"))
	judges(t, lasting, backoff.Permanent(errPlain), backoff.Permanent(context.DeadlineExceeded))
	judges(t, unknown, (*backoff.PermanentError)(nil), &permanentError{errPlain}, &Error{"504"}, (*amqp091.Error)(nil),
		errors.New("the circuit breaker is open"), errRedis("WRONGTYPE Operation against a key"))
	for _, err := range []error{
		sarama.ErrMessageSizeTooLarge, sarama.ErrRequestTimedOut, errors.New("nats: timeout"), mysql.ErrInvalidConn,
		&amqp091.Error{Code: amqp091.FrameError, Reason: "EOF"}, &amqp091.Error{Code: amqp091.NotFound, Server: true},
		&amqp091.Error{Code: amqp091.ChannelError, Server: true}, &classify.PanicError{Value: syscall.ECONNREFUSED},
		classify.Transient(dial(syscall.ECONNREFUSED)), classify.Permanent(classify.Unavailable(errPlain)),
		errors.Join(classify.Permanent(errPlain), classify.Unavailable(errPlain)),
	} {
		testkit.Check(t, !judge(wrap(err, 1)).Unavailable, "%T %v is unavailable", err, err)
	}
	testkit.Equal(t, "", judge(classify.Transient(backoff.Permanent(errPlain))), transient)
}

// These are shaped like errors of HTTP clients, of the AWS SDK and of gRPC.
type (
	errHTTP  struct{ status int }
	errLater struct {
		errHTTP
		after time.Duration
	}
	errAWS    struct{ status int }
	errGRPC   struct{ status *grpcStatus }
	errValue  struct{ code grpcCode }
	errFaulty struct{}

	grpcStatus struct{ code grpcCode }
	grpcCode   uint32
)

func (e errHTTP) Error() string              { return fmt.Sprint("status ", e.status) }
func (e errHTTP) StatusCode() int            { return e.status }
func (e errLater) RetryAfter() time.Duration { return e.after }
func (e *errAWS) Error() string              { return fmt.Sprint("https response error StatusCode: ", e.status) }
func (e *errAWS) HTTPStatusCode() int        { return e.status }
func (e *errGRPC) Error() string             { return "rpc error" }
func (e *errGRPC) GRPCStatus() *grpcStatus   { return e.status }
func (s *grpcStatus) Code() grpcCode         { return s.code }
func (e errValue) Error() string             { return "code" }
func (e errValue) Code() grpcCode            { return e.code }
func (errFaulty) Error() string              { return "faulty" }
func (errFaulty) GRPCStatus() error          { panic("no status") }

// Features C4, C7: statuses of HTTP and gRPC that errors carry. A service that is overloaded or down, and says when to
// come back, is unavailable.
func TestKnowledgeStatus(t *testing.T) {
	later := classify.Verdict{Class: classify.ClassTransient, Unavailable: true, RetryAfter: time.Minute}
	judges(t, later, errLater{errHTTP{503}, time.Minute}, errLater{errHTTP{429}, time.Minute},
		classify.With(&errGRPC{&grpcStatus{14}}, classify.RetryAfter(time.Minute)),
		classify.Unavailable(errHTTP{503}, classify.RetryAfterHeader("60")))
	judges(t, unavailable, &errGRPC{&grpcStatus{14}}, classify.Unavailable(errHTTP{503}, classify.RetryAfterHeader("soon")))
	judges(t, transient, errHTTP{503}, errLater{errHTTP{503}, 0}, &errAWS{429}, errHTTP{502}, &errAWS{504},
		&errGRPC{&grpcStatus{4}}, &errGRPC{&grpcStatus{8}}, classify.Transient(&errGRPC{&grpcStatus{14}}))
	judges(t, unknown, errHTTP{500}, errHTTP{404}, &errGRPC{&grpcStatus{3}}, &errGRPC{}, (*errGRPC)(nil), errValue{14},
		errFaulty{})
}
