package classify_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/IBM/sarama"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// structs is a slice of structs without a field that is an error for all to read.
type structs []*struct{ err error }

func (structs) Error() string { return "structs" }

// tells is an error of a client that says it by a method.
type tells bool

func (t tells) Error() string  { return "refused" }
func (t tells) TooLarge() bool { return bool(t) }

// status is an error of Amazon's clients, which have 400 for whatever is wrong with a request.
type status int

func (s status) Error() string {
	return "StatusCode: 400, InvalidParameterValue: Reason: Message must be shorter than 262144 bytes."
}
func (s status) HTTPStatusCode() int { return int(s) }

// Feature D4: types, codes and methods tell a refusal for size, and words only where a client has nothing else. A
// client that speaks to a TLS listener without TLS has no message that is too large.
func TestIsTooLarge(t *testing.T) {
	var classifier *classify.Classifier
	precondition := func(text string) error {
		return &amqp091.Error{Code: 406, Reason: "PRECONDITION_FAILED - message " + text}
	}
	of := func(err error) *sarama.ProducerError {
		return &sarama.ProducerError{Err: err, Msg: &sarama.ProducerMessage{}}
	}
	for _, err := range []error{
		classify.ErrTooLarge, sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge,
		sarama.ConfigurationError("Attempt to produce message larger than configured Producer.MaxMessageBytes: 2 > 1"),
		sarama.PacketEncodingError{Info: "invalid request size (104923136)"},
		&amqp091.Error{Code: 311, Reason: "CONTENT_TOO_LARGE"}, precondition("size 2 is larger than configured size 1"),
		&mysql.MySQLError{Number: 1153}, &mysql.MySQLError{Number: 1118}, mysql.ErrPktTooLarge,
		&pgconn.PgError{Code: "54000"}, syscall.EMSGSIZE, tells(true), status(400), status(413),
		errors.Join(errPlain, sarama.ErrMessageSizeTooLarge),
		sarama.ProducerErrors{nil, of(sarama.ErrOutOfBrokers), of(sarama.ErrMessageSizeTooLarge)},
	} {
		testkit.Check(t, classifier.IsTooLarge(err) && classifier.IsTooLarge(fmt.Errorf("publish: %w", err)),
			"%T %v is a refusal for size", err, err)
	}
	for _, text := range []string{
		"nats: maximum payload exceeded", "nats: header size exceeds maximum allowed of 64k",
		"MESSAGE_TOO_LARGE: the request included a message larger than the max message size",
		"ERR Protocol error: invalid bulk length", "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
		"Request payload size exceeds the limit: 10485760 bytes.", "InvalidParameter: Message too long",
		`The value of property "payload" is longer than 1048487 bytes.`, `"unended: message too large`,
		`can't write to "orders": it's 2 MiB: message too large`,
	} {
		testkit.Check(t, classifier.IsTooLarge(errors.New(text)), "%s is a refusal for size", text)
	}
	for _, err := range []error{
		nil, sarama.PacketDecodingError{Info: "message of length 352518912 too large or too small"},
		fmt.Errorf("message too large: %w", sarama.ErrNotLeaderForPartition), sarama.ErrOutOfBrokers,
		sarama.ConfigurationError("message too small"), sarama.PacketEncodingError{Info: "unknown"},
		precondition("too large a claim"), &amqp091.Error{Code: 320, Reason: "larger than"},
		&mysql.MySQLError{Number: 1213, Message: "message too large"}, (*mysql.MySQLError)(nil),
		&pgconn.PgError{Code: "53300", Message: "payload too large"}, syscall.ECONNRESET, evilState{errPlain}, loop(),
		sarama.ProducerErrors{of(sarama.ErrOutOfBrokers)}, sarama.ProducerErrors{}, tells(false), status(500),
		structs{nil, {}, {err: classify.ErrTooLarge}},
	} {
		testkit.Check(t, !classifier.IsTooLarge(err), "%T %v is no refusal for size", err, err)
	}
	for _, text := range []string{
		"too large or too small", "http2: frame too large", "larger than life", "SSL: record too large",
		`queue "message too large" not found`, "topic 'message too large' not found", "no stream `payload too large`",
		"nats: maximum bytes exceeded", "OOM command not allowed when used memory > 'maxmemory'",
	} {
		testkit.Check(t, !classifier.IsTooLarge(errors.New(text)), "%s is no refusal for size", text)
	}
}

// Features C4, D4: what is too large is permanent, and says so under other marks and beside other errors, until a mark
// names another class. An application says it with a mark or a rule.
func TestTooLargeByMarkAndRule(t *testing.T) {
	judges(t, classify.Verdict{Class: classify.ClassPermanent, TooLarge: true}, classify.ErrTooLarge)
	judges(t, transient, classify.Transient(wrap(classify.ErrTooLarge, 1)))
	own, other := errors.New("body exceeds the quota"), errors.New("not now")
	classifier := newClassifier(t, classify.Config{Rules: []classify.Rule{
		func(error) (classify.Verdict, bool) { panic("a rule") },
		classify.Is(own, classify.Verdict{TooLarge: true, Reason: "quota"}),
	}})
	testkit.Equal(t, "by the rule", classifier.Classify(own),
		classify.Verdict{Class: classify.ClassPermanent, TooLarge: true, Reason: "quota"})
	for _, err := range []error{own, fmt.Errorf("publish: %w", own), errors.Join(other, own)} {
		testkit.Check(t, classifier.IsTooLarge(err) && !(*classify.Classifier)(nil).IsTooLarge(err),
			"%v is a refusal for size by the rule alone", err)
	}
	failed := &classify.Failure{Err: other, Verdict: classify.Verdict{TooLarge: true}}
	for _, err := range []error{failed, wrap(failed, 1), errors.Join(other, failed), classify.Transient(failed)} {
		testkit.Check(t, classifier.IsTooLarge(err), "%v is a refusal for size by an earlier verdict", err)
	}
	for _, err := range []error{other, classify.Permanent(other), nil} {
		testkit.Check(t, !classifier.IsTooLarge(err), "%v is a refusal for size", err)
	}
}
