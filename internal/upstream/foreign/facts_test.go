package foreign

import (
	stdsql "database/sql"
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/cenkalti/backoff/v4"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
	"github.com/rabbitmq/amqp091-go"
	_ "modernc.org/sqlite"
)

// proved are the rows that have been met in this package's tests.
var proved = map[string]bool{}

// met notes that the real type has been judged, and fails for a miss.
func met(t *testing.T, of any, known bool) {
	t.Helper()
	v := reflect.Indirect(reflect.ValueOf(of))
	name := strings.TrimPrefix(v.Type().PkgPath(), "vendor/") + "." + v.Type().Name()
	for _, miss := range Take() {
		t.Errorf("%s has changed: %s. Look at the new version, and correct its row", miss.Of, miss.What)
	}
	if !known {
		t.Errorf("%s is not known any more: look for its new name, and correct its row", name)
	}
	for _, r := range rows() {
		if r.is(v.Type()) {
			proved[r.String()] = true
		}
	}
}

func rows() (all []*row) {
	for i := range publishers {
		all = append(all, &publishers[i].row)
	}
	for i := range subscribers {
		all = append(all, &subscribers[i].row)
	}
	for i := range errorTypes {
		all = append(all, &errorTypes[i].row)
	}
	for i := range severities {
		all = append(all, &severities[i])
	}
	return append(all, &routerRow, &middlewareRow, &handlerRow, &pqConn)
}

// fails returns the error of a call that must fail.
func fails(t *testing.T, err error) error {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	return err
}

func TestFactPublishers(t *testing.T) {
	channel := gochannel.NewGoChannel(gochannel.Config{}, nil)
	defer channel.Close()
	into := forwarder.NewPublisher(channel, forwarder.PublisherConfig{ForwarderTopic: "into"})
	for _, row := range []struct {
		pub  message.Publisher
		want Publisher
	}{{channel, Publisher{Creates: true}}, {into, Publisher{Into: "into"}}} {
		got := PublisherOf(reflect.ValueOf(row.pub).Elem())
		met(t, row.pub, got != nil && reflect.DeepEqual(*got, row.want))
	}
}

func TestFactSubscribers(t *testing.T) {
	for _, row := range []struct {
		sub  any
		want Subscriber
	}{
		{&gochannel.GoChannel{}, Subscriber{}},
		{&kafka.Subscriber{}, Subscriber{After: time.Minute, Session: true}},
		{&amqp.Subscriber{}, Subscriber{After: 30 * time.Minute, Session: true}},
		{&sql.Subscriber{}, Subscriber{After: 30 * time.Second, Transaction: true}},
	} {
		got := SubscriberOf(reflect.ValueOf(row.sub).Elem())
		met(t, row.sub, got != nil && *got == row.want)
	}
}

// A router's middlewares and subscribers are where they were.
func TestFactRouter(t *testing.T) {
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	channel := gochannel.NewGoChannel(gochannel.Config{}, nil)
	defer channel.Close()
	handler := router.AddConsumerHandler("billing", "orders", channel, func(*message.Message) error { return nil })
	same := func(h message.HandlerFunc) message.HandlerFunc { return h }
	handler.AddMiddleware(same, same)
	router.AddMiddleware(same)
	own, known := Middlewares(router, "billing")
	others, _ := Middlewares(router, "shipping")
	met(t, router, known && own == 2 && others == 0)
	subscribers, known := Subscribers(router)
	met(t, router, known && len(subscribers) == 1 && subscribers[0].Elem().UnsafePointer() == reflect.ValueOf(channel).UnsafePointer())
	met(t, router, CloseTimeout(router) == 30*time.Second)
	proved[middlewareRow.String()], proved[handlerRow.String()] = true, true
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
		met(t, row.err, got.Kind == row.kind && got.Code() == row.code)
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
		met(t, err, Severity(err) == "FATAL")
	}
}

// lib/pq gives its connection only for a server, so the test is one: it lets everyone in, and is ready.
func TestFactPQ(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_, _ = conn.Read(make([]byte, 1024))
			_, _ = conn.Write([]byte{'R', 0, 0, 0, 8, 0, 0, 0, 0, 'Z', 0, 0, 0, 5, 'I'})
		}
	}()
	connector, err := pq.NewConnector("postgres://" + listener.Addr().String() + "/x?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := connector.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	met(t, conn, ClosesDuringCalls(conn))
}

// notRequired are modules that examples does not require either: the clients of two clouds, and one in C.
var notRequired = map[string]bool{
	"github.com/ThreeDotsLabs/watermill-googlecloud": true, "github.com/ThreeDotsLabs/watermill-aws": true,
	"github.com/mattn/go-sqlite3": true,
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
		for _, r := range textRows {
			if r.is(row.err.Error(), r.means&-r.means) {
				proved[r.text] = true
			}
		}
	}
}

// TestRowsHaveFacts fails for a row whose real type no test has met. Rows of modules that the library does not require
// are met by tests in examples.
func TestRowsHaveFacts(t *testing.T) {
	for name, test := range map[string]func(*testing.T){"publishers": TestFactPublishers, "subscribers": TestFactSubscribers,
		"router": TestFactRouter, "errors": TestFactErrors, "pq": TestFactPQ, "texts": TestFactTexts} {
		t.Run(name, test)
	}
	elsewhere, _ := os.ReadFile("../../../lab/proofs/foreign/facts_test.go")
	for _, r := range rows() {
		if !proved[r.String()] && !strings.Contains(string(elsewhere), `"`+r.String()+`"`) && !notRequired[r.module] {
			t.Errorf("no test meets %s", r)
		}
	}
	for _, r := range textRows {
		if !proved[r.text] && !strings.Contains(string(elsewhere), `"`+r.text+`"`) {
			t.Errorf("no test meets the text %q of %s", r.text, r.of)
		}
	}
}
