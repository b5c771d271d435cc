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
	"github.com/watermill-spillway/spillway/internal/testkit"
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

// Feature D4: types and codes tell a refusal for size, and words only where a client has nothing else. A client that
// speaks to a TLS listener without TLS has no message that is too large.
func TestIsTooLarge(t *testing.T) {
	var classifier *classify.Classifier
	for _, err := range []error{
		classify.ErrTooLarge, sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge,
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
		testkit.Check(t, classifier.IsTooLarge(err) && classifier.IsTooLarge(fmt.Errorf("publish: %w", err)),
			"%T %v is a refusal for size", err, err)
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
		sarama.ProducerErrors{}, structs{nil, {}, {err: classify.ErrTooLarge}},
		errors.New(`queue "message too large" not found`), errors.New("topic 'message too large' not found"), errors.New("no stream `payload too large`"),
	} {
		testkit.Check(t, !classifier.IsTooLarge(err), "%T %v is no refusal for size", err, err)
	}
}

// tells is an error of a client that says it by a method.
type tells bool

func (t tells) Error() string  { return "refused" }
func (t tells) TooLarge() bool { return bool(t) }

// status is an error of Amazon's clients, which have 400 for whatever is wrong with a request.
type status int

func (s status) Error() string {
	return "https response error StatusCode: 400, InvalidParameterValue: Reason: Message must be shorter than 262144 bytes."
}
func (s status) HTTPStatusCode() int { return int(s) }

// Feature D4: a client without types and codes is known by its words, and one with a method by the method.
func TestIsTooLargeByClient(t *testing.T) {
	var classifier *classify.Classifier
	for _, err := range []error{
		tells(true), status(400), status(413),
		fmt.Errorf("sending message failed: %w", errors.New("nats: maximum payload exceeded")),
		errors.New("nats: message size exceeds maximum allowed"), errors.New("nats: header size exceeds maximum allowed of 64k"),
		errors.New("ERR Protocol error: invalid bulk length"), errors.New("ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
		errors.New("rpc error: code = InvalidArgument desc = Request payload size exceeds the limit: 10485760 bytes."),
		errors.New("rpc error: code = InvalidArgument desc = The value of property \"payload\" is longer than 1048487 bytes."),
		errors.New("InvalidParameter: Invalid parameter: Message too long"),
	} {
		testkit.Check(t, classifier.IsTooLarge(err), "%v is a refusal for size", err)
	}
	for _, err := range []error{
		tells(false), status(500), errors.New("nats: maximum messages exceeded"), errors.New("nats: maximum bytes exceeded"),
		errors.New("OOM command not allowed when used memory > 'maxmemory'"), errors.New("nats: timeout"),
	} {
		testkit.Check(t, !classifier.IsTooLarge(err), "%v is no refusal for size", err)
	}
}

// Feature D4: an application says it with a mark or a rule. The mark counts under other marks and beside other errors.
func TestTooLargeByMarkAndRule(t *testing.T) {
	own, other := errors.New("body exceeds the quota"), errors.New("not now")
	classifier, err := classify.New(classify.Config{Rules: []classify.Rule{
		func(error) (classify.Verdict, bool) { panic("a rule") },
		classify.Is(own, classify.Verdict{TooLarge: true, Reason: "quota"}),
	}})
	testkit.NoError(t, err)
	v := classifier.Classify(own)
	testkit.Check(t, v.Class == classify.ClassPermanent && v.TooLarge && v.Reason == "quota", "by the rule: %+v", v)
	for _, err := range []error{own, fmt.Errorf("publish: %w", own), errors.Join(other, own)} {
		testkit.Check(t, classifier.IsTooLarge(err) && !(*classify.Classifier)(nil).IsTooLarge(err),
			"%v is a refusal for size by the rule alone", err)
	}
	failed := &classify.Failure{Err: other, Verdict: classify.Verdict{TooLarge: true}}
	for _, err := range []error{failed, wrap(failed, 1), errors.Join(other, failed), classify.Transient(failed)} {
		testkit.Check(t, (*classify.Classifier)(nil).IsTooLarge(err),
			"%v is a refusal for size by an earlier verdict", err)
	}
	if classifier.IsTooLarge(other) || classifier.IsTooLarge(classify.Permanent(other)) || classifier.IsTooLarge(nil) {
		t.Error("an error without it is no refusal for size")
	}
	if _, err := classify.New(classify.Config{Rules: []classify.Rule{classify.Is(own, classify.Verdict{Class: classify.ClassTransient, TooLarge: true})}}); err == nil {
		t.Error("a size passes with time, by a rule that New took")
	}
}

// Feature C4: an error that wraps ErrTooLarge is permanent wherever it comes from, and a mark, or a worse error beside
// it, decides as usual.
func TestTooLargeIsPermanent(t *testing.T) {
	v := judge(wrap(classify.ErrTooLarge, 2))
	testkit.Check(t, v.Class == classify.ClassPermanent && v.TooLarge, "%+v", v)
	v = judge(classify.Transient(wrap(classify.ErrTooLarge, 1)))
	testkit.Check(t, v.Class == classify.ClassTransient && !v.TooLarge, "marked: %+v", v)
}
