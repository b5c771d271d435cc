package foreign_test

import (
	stdsql "database/sql"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
	"github.com/rabbitmq/amqp091-go"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/internal/testing/facts"
	. "github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

var (
	rows = facts.Of(ErrorRows()...)
	said = map[string]bool{} // the texts that have been met
)

// fails returns the error of a call that must fail.
func fails(t *testing.T, err error) error {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	return err
}

func TestFactErrors(t *testing.T) {
	db, err := stdsql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	_, noTable := db.Exec("SELECT * FROM nowhere")
	_, refused := pgconn.Connect(t.Context(), "postgres://127.0.0.1:1/x?sslmode=disable&connect_timeout=1")
	for _, row := range []struct {
		err  error
		kind Kind
		code int64
	}{
		{errors.New("x"), Plain, 0},
		{sarama.Wrap(sarama.ErrOutOfBrokers, io.EOF), Plain, 0},
		{sarama.ErrMessageSizeTooLarge, Kafka, 10},
		{sarama.ConfigurationError("x"), KafkaConfig, 0},
		{sarama.PacketEncodingError{Info: "x"}, KafkaEncode, 0},
		{sarama.PacketDecodingError{Info: "x"}, KafkaDecode, 0},
		{&amqp091.Error{Code: 501, Server: true, Reason: "x"}, AMQP, 501},
		{&mysql.MySQLError{Number: 1213}, MySQL, 1213},
		{fails(t, noTable), SQLite, 1},
		{fails(t, refused), Connect, 0},
		{backoff.Permanent(errors.New("x")), Permanent, 0},
		{cqrs.NoProtoMessageError{}, Unreadable, 0},
	} {
		got := ErrorOf(row.err)
		rows.Met(t, row.err, got.Kind == row.kind && got.Code() == row.code)
	}
	if e := ErrorOf(&amqp091.Error{Server: true, Reason: "x"}); !e.ByServer() || e.Text() != "x" {
		t.Error("AMQP", e)
	}
	if e := ErrorOf(sarama.PacketEncodingError{Info: "x"}); e.Text() != "x" {
		t.Error("Kafka", e)
	}
	list := sarama.ProducerErrors{{Err: errors.New("x")}, nil, {}}
	if errs := Listed(list); len(errs) != 1 || errs[0].Error() != "x" {
		t.Error("sarama.ProducerErrors", errs)
	}
	for _, err := range []error{&pgconn.PgError{Severity: "FATAL"}, &pq.Error{Severity: "FATAL"}} {
		rows.Met(t, err, ErrorOf(err).Text() == "FATAL")
	}
}

// What clients say is what the table has.
func TestFactTexts(t *testing.T) {
	db, err := stdsql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	_ = db.Close()
	odd := message.NewMessage("1", nil)
	odd.Metadata.Set(kafka.UUIDHeaderKey, "2")
	_, reserved := kafka.DefaultMarshaler{}.Marshal("x", odd)
	for _, row := range []struct {
		err   error
		means Meaning
	}{
		{db.Ping(), Unavailable | UnavailableForUs},
		{mysql.ErrInvalidConn, Passes | UnavailableForUs | Cut},
		{&amqp091.Error{Code: 501, Reason: "x"}, Cut},
		{&amqp091.Error{Code: 504, Reason: "x"}, Lost},
		{(&amqp.Publisher{ConnectionWrapper: &amqp.ConnectionWrapper{}}).Publish("x"), Unavailable | UnavailableForUs | Unconnected},
		{sarama.ErrOutOfBrokers, Unavailable | UnavailableForUs | Unconnected},
		{sarama.ErrControllerNotAvailable, Unavailable | UnavailableForUs},
		{sarama.ErrClosedClient, Unavailable | UnavailableForUs},
		{sarama.ErrNotConnected, UnavailableForUs | Lost},
		{sarama.ErrShuttingDown, UnavailableForUs},
		{reserved, Refuses},
	} {
		for m := Unavailable; m <= Refuses; m <<= 1 {
			if row.err == nil || Says(row.err.Error(), m) != (row.means&m != 0) {
				t.Errorf("%v: %b. Look at what it says now, and correct its row", row.err, m)
			}
		}
		for _, text := range TextsOf(row.err.Error()) {
			said[text] = true
		}
	}
}

// TestRowsHaveFacts fails for a row of this package whose real type no test has met, and for such a text.
func TestRowsHaveFacts(t *testing.T) {
	t.Run("errors", TestFactErrors)
	t.Run("texts", TestFactTexts)
	rows.Check(t)
	for _, text := range TextsOf("") {
		if !said[text] && !strings.Contains(facts.Elsewhere(t), `"`+text+`"`) {
			t.Errorf("no test meets the text %q", text)
		}
	}
}
