package classify_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// errRedis is shaped like the errors of go-redis.
type errRedis string

func (e errRedis) Error() string { return string(e) }
func (errRedis) RedisError()     {}

func dial(cause error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: cause} }

// Feature C7: what is not about the message, and what may be: a time-out, a connection that was lost under the request,
// a statement.
func TestKnowledgeAway(t *testing.T) {
	state := func(code string) error { return &pgconn.PgError{Code: code} }
	number := func(n uint16) error { return &mysql.MySQLError{Number: n} }
	unknownHost := &net.DNSError{Err: "no such host", Name: "db", IsNotFound: true}
	for name, row := range map[string]struct {
		err  error
		away bool
	}{
		"refused":                  {dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), true},
		"host unreachable":         {dial(syscall.EHOSTUNREACH), true},
		"network unreachable":      {syscall.ENETUNREACH, true},
		"no socket":                {dial(os.NewSyscallError("connect", syscall.ENOENT)), true},
		"no such host":             {dial(unknownHost), true},
		"name server fails":        {dial(&net.DNSError{Err: "server misbehaving", IsTemporary: true}), true},
		"bad connection":           {driver.ErrBadConn, true},
		"postgres, shutdown":       {state("57P01"), true},
		"postgres, crash":          {state("57P02"), true},
		"postgres, starts":         {state("57P03"), true},
		"postgres, cannot connect": {state("08001"), true},
		"postgres, lost":           {pqError{"08006"}, true},
		"postgres, full":           {state("53300"), true},
		"postgres, replica":        {state("25006"), true},
		"postgres, password":       {state("28P01"), true},
		"postgres, prepared twice": {state("42P05"), true},
		"postgres, not prepared":   {pqError{"26000"}, true},
		"postgres, idle for long":  {state("57P05"), true},
		"pgbouncer, wait":          {&pgconn.PgError{Severity: "FATAL", Code: "08P01", Message: "query_wait_timeout"}, true},
		"mysql, full":              {number(1040), true},
		"mysql, shutdown":          {number(1053), true},
		"mysql, password":          {number(1045), true},
		"mysql, read-only":         {number(1290), true},
		"mysql, proxy":             {number(2003), true},
		"mysql, proxy lost it":     {number(2013), true},
		"proxysql":                 {number(9001), true},
		"kafka, no brokers":        {sarama.ErrOutOfBrokers, true},
		"kafka, no brokers, cause": {sarama.Wrap(sarama.ErrOutOfBrokers, io.EOF), true},
		"kafka, no leader":         {sarama.ErrLeaderNotAvailable, true},
		"kafka, no replicas":       {sarama.ErrNotEnoughReplicas, true},
		"amqp, closed":             {amqp091.ErrClosed, true},
		"amqp, forced":             {&amqp091.Error{Code: amqp091.ConnectionForced, Server: true}, true},
		"amqp, watermill":          {errors.New("not connected to AMQP"), true},
		"nats, no responders":      {errors.New("nats: no responders available for request"), true},
		"redis, starts":            {errRedis("LOADING Redis is loading the dataset in memory"), true},
		"mark":                     {classify.Away(errors.New("maintenance")), true},
		"mark, retry-after":        {classify.Away(errors.New("maintenance"), classify.RetryAfter(time.Hour)), true},
		"mark in a mark":           {classify.With(classify.Away(errors.New("x")), classify.Reason("r")), true},
		"mark beside an unknown":   {errors.Join(errors.New("a"), classify.Away(errors.New("b"))), true},

		"time-out":                {context.DeadlineExceeded, false},
		"dial, time-out":          {dial(os.ErrDeadlineExceeded), false},
		"dial, cancelled":         {dial(context.Canceled), false},
		"dial, bad address":       {dial(&net.AddrError{Err: "missing port"}), false},
		"name server, time-out":   {dial(&net.DNSError{Err: "i/o timeout", IsTimeout: true}), false},
		"own lookup":              {unknownHost, false},
		"reset":                   {&net.OpError{Op: "read", Err: syscall.ECONNRESET}, false},
		"broken pipe":             {syscall.EPIPE, false},
		"disk full":               {syscall.ENOSPC, false},
		"mysql, lost":             {mysql.ErrInvalidConn, false},
		"mysql, deadlock":         {number(1213), false},
		"mysql, no table":         {number(1146), false},
		"postgres, protocol":      {state("08P01"), false},
		"postgres, cancelled":     {state("57014"), false},
		"postgres, serialize":     {state("40001"), false},
		"postgres, no table":      {state("42P01"), false},
		"postgres, disk full":     {state("53100"), false},
		"kafka, too large":        {sarama.ErrMessageSizeTooLarge, false},
		"kafka, time-out":         {sarama.ErrRequestTimedOut, false},
		"amqp, lost":              {&amqp091.Error{Code: amqp091.FrameError, Reason: "EOF"}, false},
		"amqp, channel by it":     {&amqp091.Error{Code: amqp091.ChannelError, Server: true}, false},
		"amqp, not found":         {&amqp091.Error{Code: amqp091.NotFound, Server: true}, false},
		"nats, time-out":          {errors.New("nats: timeout"), false},
		"redis, wrong type":       {errRedis("WRONGTYPE Operation against a key"), false},
		"limit":                   {errors.New("rate limit exceeded"), false},
		"unknown":                 {errors.New("boom"), false},
		"panic":                   {&classify.PanicError{Value: syscall.ECONNREFUSED}, false},
		"marked transient":        {classify.Transient(dial(syscall.ECONNREFUSED)), false},
		"marked permanent":        {classify.Permanent(classify.Away(errors.New("a"))), false},
		"permanent beside":        {errors.Join(classify.Permanent(errors.New("a")), classify.Away(errors.New("b"))), false},
		"nil pointers":            {errors.Join((*mysql.MySQLError)(nil), (*amqp091.Error)(nil), (*net.OpError)(nil)), false},
		"a code of another shape": {&Error{"504"}, false},
	} {
		for place, err := range map[string]error{"bare": row.err, "wrapped": wrap(row.err, 3)} {
			v := judge(err)
			testkit.Check(t, v.Away == row.away && (!v.Away || v.Class == classify.ClassTransient),
				"%s, %s: %+v", name, place, v)
		}
	}
	testkit.Check(t, classify.Away(nil) == nil, "a nil error is away")
}

// Error has a name that client libraries use too.
type Error struct{ Code string }

func (e *Error) Error() string { return e.Code }

// Feature C7: a rule can say that an error is away. Alone, Away means transient; beside a class that does not pass with
// time it is refused.
func TestRuleAway(t *testing.T) {
	c := newClassifier(t, classify.Config{Rules: []classify.Rule{classify.Is(errSentinel, classify.Verdict{Away: true, Reason: "maintenance"})}})
	if v := c.Classify(wrap(errSentinel, 2)); v != (classify.Verdict{Class: classify.ClassTransient, Away: true, Reason: "maintenance"}) {
		t.Errorf("%+v", v)
	}
	for _, class := range []classify.Class{classify.ClassPermanent, classify.ClassInvalid, classify.ClassDiscard} {
		rule := classify.Is(errSentinel, classify.Verdict{Class: class, Away: true})
		testkit.Check(t, testkit.Err(classify.New(classify.Config{Rules: []classify.Rule{rule}})) != nil,
			"%s: no error", class)
	}
	never := func(error) (classify.Verdict, bool) {
		return classify.Verdict{Class: classify.ClassPermanent, Away: true}, true
	}
	late := newClassifier(t, classify.Config{Rules: []classify.Rule{func(err error) (classify.Verdict, bool) { v, _ := never(nil); return v, errors.As(err, new(errStatus)) }}})
	v := late.Classify(errStatus{503})
	testkit.Check(t, !v.Away && v.Class == classify.ClassPermanent, "%+v", v)
}
