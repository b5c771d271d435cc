package errorkind_test

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/IBM/sarama"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/errs/errorkind"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type status struct{ code uint32 }

func (s *status) Code() uint32 { return s.code }

type rpcError struct{ status }

func (rpcError) Error() string         { return "of a call" }
func (e rpcError) GRPCStatus() *status { return &e.status }

type answer int

func (answer) Error() string     { return "an answer" }
func (a answer) StatusCode() int { return int(a) }

type broken struct{}

func (*broken) Error() string    { panic("no text") }
func (*broken) SQLState() string { panic("no state") }

type endless struct{ n *int }

func (e endless) Error() string   { return "endless" }
func (e endless) Unwrap() error   { *e.n++; return e }
func (e endless) StatusCode() int { return *e.n }

// Feature R17: the kind of an error is made of types and codes alone. Texts do not change it.
func TestOf(t *testing.T) {
	for want, err := range map[string]error{
		"":                                     nil,
		"*errors.errorString":                  errors.New("of message 7"),
		"*pgconn.PgError(\"40001\")":           classify.Transient(fmt.Errorf("order 7: %w", &pgconn.PgError{Code: "40001", Message: "of message 7"})),
		"*mysql.MySQLError(1213)":              &mysql.MySQLError{Number: 1213},
		"*amqp091.Error(504)":                  &amqp091.Error{Code: 504},
		"sarama.KError(6)":                     sarama.ErrNotLeaderForPartition,
		"syscall.Errno(104)":                   syscall.ECONNRESET,
		"errorkind_test.rpcError(13)":          rpcError{status{13}},
		"errorkind_test.answer(500)":           answer(500),
		"*errorkind_test.broken":               new(broken),
		"*pgconn.PgError":                      (*pgconn.PgError)(nil),
		"*errors.joinError > sarama.KError(5)": errors.Join(sarama.ErrLeaderNotAvailable, errors.New("another")),
	} {
		if got := errorkind.Of(err); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if a, b := errorkind.Of(&pgconn.PgError{Code: "40001\nof a message"}), errorkind.Of(&pgconn.PgError{Code: "of another"}); a != b {
		t.Errorf("%q and %q: the text of a message makes a kind", a, b)
	}
	if got := errorkind.Of(endless{new(int)}); len(got) > 300 {
		t.Errorf("%d bytes", len(got))
	}
	if got := errorkind.Types(&pgconn.PgError{Code: "40001"}); strings.Contains(got, "40001") {
		t.Error(got)
	}
}
