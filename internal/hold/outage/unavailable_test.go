package outage

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/IBM/sarama"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// redisError is as go-redis has it.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// Decisions 13, 21: what says that a thing is unavailable, what says something of the message, and what is a nack.
func TestUnavailable(t *testing.T) {
	state := func(code string) error { return &pgconn.PgError{Code: code} }
	number := func(n uint16) error { return &mysql.MySQLError{Number: n} }
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for name, row := range map[string]struct {
		err         error
		unavailable bool
	}{
		"refused":             {refused, true},
		"refused, wrapped":    {fmt.Errorf("a: %w", errors.Join(errors.New("b"), refused)), true},
		"reset":               {syscall.ECONNRESET, true},
		"bad connection":      {driver.ErrBadConn, true},
		"mysql's own":         {mysql.ErrInvalidConn, true},
		"cut":                 {io.ErrUnexpectedEOF, true},
		"time-out":            {context.DeadlineExceeded, true},
		"postgres shut down":  {state("57P01"), true},
		"postgres is full":    {state("53300"), true},
		"a replica":           {state("25006"), true},
		"no table":            {state("42P01"), true},
		"wrong password":      {state("28P01"), true},
		"prepared twice":      {state("42P05"), true},
		"not prepared":        {state("26000"), true},
		"mysql is full":       {number(1040), true},
		"mysql read-only":     {number(1290), true},
		"mysql, killed":       {number(1927), true},
		"redis is full":       {fmt.Errorf("xadd: %w", redisError("OOM command not allowed when used memory > 'maxmemory'.")), true},
		"redis, clients":      {redisError("ERR max number of clients reached"), true},
		"redis, pool":         {errors.New("redis: connection pool timeout"), true},
		"redis, wrong type":   {redisError("WRONGTYPE Operation against a key holding the wrong kind of value"), false},
		"our own":             {hold.NewUnavailable("away"), true},
		"kafka, no brokers":   {sarama.ErrOutOfBrokers, true},
		"kafka, wrapped":      {fmt.Errorf("a: %w", sarama.Wrap(sarama.ErrOutOfBrokers, refused)), true},
		"kafka, no replicas":  {sarama.ErrNotEnoughReplicas, true},
		"amqp is closed":      {amqp091.ErrClosed, true},
		"amqp shut down":      {&amqp091.Error{Code: amqp091.ConnectionForced}, true},
		"nack":                {fmt.Errorf("a: %w", NewNack("nack")), true},
		"nack, marked":        {classify.Transient(NewNack("nack")), true},
		"nack, joined":        {errors.Join(errors.New("b"), NewNack("nack")), true},
		"nack, of kafka":      {sarama.ErrUnknown, true},
		"nack, kafka's quota": {fmt.Errorf("a: %w", sarama.KError(89)), true},
		"nil":                 {nil, false},
		"unknown":             {errors.New("boom"), false},
		"cancelled":           {context.Canceled, false},
		"no rows":             {sql.ErrNoRows, false},
		"duplicate":           {state("23505"), false},
		"deadlock":            {state("40P01"), false},
		"statement cancelled": {state("57014"), false},
		"mysql deadlock":      {number(1213), false},
		"mysql, row changed":  {number(1020), false},
		"mysql, innodb reads": {number(1036), true},
		"mysql, binary log":   {number(1665), true},
		"mysql data too long": {number(1406), false},
		"kafka, too large":    {sarama.ErrMessageSizeTooLarge, false},
		"amqp, not found":     {&amqp091.Error{Code: amqp091.NotFound}, false},
		"amqp, cut":           {&amqp091.Error{Code: amqp091.FrameError, Reason: "EOF"}, true},
		"amqp, bad frame":     {&amqp091.Error{Code: amqp091.FrameError, Server: true}, false},
		"wraps itself":        {endless{}, false},
	} {
		testkit.Equal(t, name+": away", Unavailable(row.err), row.unavailable)
		testkit.Equal(t, name+": nacked", Nacked(row.err), strings.HasPrefix(name, "nack"))
	}
}

type endless struct{}

func (endless) Error() string   { return "endless" }
func (e endless) Unwrap() error { return e }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
