package poison_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/IBM/sarama"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/poison"
)

// panicking is an error whose methods panic.
type panicking struct{ error }

func (panicking) SQLState() string { panic("state") }

// endless wraps itself.
type endless struct{}

func (e endless) Error() string { return "endless" }
func (e endless) Unwrap() error { return e }

// structs is a slice of structs without a field that is an error for all to read.
type structs []*struct{ err error }

func (structs) Error() string { return "structs" }

// Feature D4: types and codes tell a refusal for size, and words only where a client has nothing else. A client that speaks
// to a TLS listener without TLS has no message that is too large.
func TestIsTooLarge(t *testing.T) {
	for _, err := range []error{
		poison.ErrTooLarge, sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge,
		sarama.ConfigurationError("Attempt to produce message larger than configured Producer.MaxMessageBytes: 2 > 1"),
		sarama.PacketEncodingError{Info: "invalid request size (104923136)"},
		&amqp091.Error{Code: 311, Reason: "CONTENT_TOO_LARGE"},
		&amqp091.Error{Code: 406, Reason: "PRECONDITION_FAILED - message size 2 is larger than configured max size 1"},
		&mysql.MySQLError{Number: 1153}, &mysql.MySQLError{Number: 1118}, mysql.ErrPktTooLarge,
		&pgconn.PgError{Code: "54000"}, syscall.EMSGSIZE,
		errors.New("nats: maximum payload exceeded"), errors.New("MESSAGE_TOO_LARGE: the request included a message larger than the max message size"),
		errors.Join(errors.New("first"), sarama.ErrMessageSizeTooLarge),
		sarama.ProducerErrors{nil, {Err: sarama.ErrOutOfBrokers}, {Err: sarama.ErrMessageSizeTooLarge, Msg: &sarama.ProducerMessage{}}},
		errors.New(`can't write to "orders": it's 2 MiB: message too large`), errors.New(`"unended: message too large`),
	} {
		if !poison.IsTooLarge(err) || !poison.IsTooLarge(fmt.Errorf("publish: %w", err)) {
			t.Errorf("%T %v is a refusal for size", err, err)
		}
	}
	for _, err := range []error{
		nil, errors.New("too large or too small"), errors.New("http2: frame too large"), errors.New("larger than life"),
		sarama.PacketDecodingError{Info: "message of length 352518912 too large or too small"},
		fmt.Errorf("message too large: %w", sarama.ErrNotLeaderForPartition),
		sarama.ErrOutOfBrokers, sarama.ConfigurationError("message too small"), sarama.PacketEncodingError{Info: "unknown"},
		&amqp091.Error{Code: 406, Reason: "PRECONDITION_FAILED - message too large a claim"}, &amqp091.Error{Code: 320, Reason: "larger than"},
		&mysql.MySQLError{Number: 1213, Message: "message too large"}, (*mysql.MySQLError)(nil),
		&pgconn.PgError{Code: "53300", Message: "payload too large"}, syscall.ECONNRESET, panicking{}, endless{},
		errors.New("SSL: record too large"), sarama.ProducerErrors{{Err: sarama.ErrOutOfBrokers, Msg: &sarama.ProducerMessage{}}},
		sarama.ProducerErrors{}, structs{nil, {}, {err: poison.ErrTooLarge}},
		errors.New(`queue "message too large" not found`), errors.New("topic 'message too large' not found"), errors.New("no stream `payload too large`"),
	} {
		if poison.IsTooLarge(err) {
			t.Errorf("%T %v is no refusal for size", err, err)
		}
	}
}
