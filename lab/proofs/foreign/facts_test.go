// Package foreign_test meets the types of modules that the library knows, in internal/upstream/foreign, and does not
// require.
package foreign_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	"connectrpc.com/connect"
	oldsarama "github.com/Shopify/sarama"
	"github.com/ThreeDotsLabs/watermill-nats/v2/pkg/jetstream"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/cenkalti/backoff/v5"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/jackc/pgconn"
	pgconn5 "github.com/jackc/pgx/v5/pgconn"
	"github.com/nats-io/nats.go"
	pkgerrors "github.com/pkg/errors"
	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"
	"github.com/sony/gobreaker"
	"github.com/streadway/amqp"
	"github.com/twmb/franz-go/pkg/kerr"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/upstream/destination"
	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

// met fails if what is known of a row's type has changed.
func met(t *testing.T, row string, known bool) {
	t.Helper()
	for _, miss := range foreign.Take() {
		t.Errorf("%s has changed: %s. Look at the new version, and correct its row", miss.Of, miss.What)
	}
	testkit.Check(t, known, "%s is not known any more: look for its new name, and correct its row", row)
}

func TestFactPublishers(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	stream := testkit.Must(redisstream.NewPublisher(redisstream.PublisherConfig{
		Client: client, Maxlens: map[string]int64{"a": 7}, DefaultMaxlen: 9}, nil))
	got := destination.PublisherOf(reflect.ValueOf(stream).Elem())
	met(t, "github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream.Publisher",
		got != nil && got.Creates && got.MaxLength("a") == 7 && got.MaxLength("b") == 9)
	for _, c := range []struct {
		config    wmnats.JetStreamConfig
		marshaler wmnats.Marshaler
		want      destination.Publisher
	}{
		{wmnats.JetStreamConfig{AutoProvision: true, TrackMsgID: true}, &wmnats.NATSMarshaler{},
			destination.Publisher{Looks: true, Deduplicates: "JetStreamConfig.TrackMsgID"}},
		{wmnats.JetStreamConfig{TrackMsgID: true}, &wmnats.JSONMarshaler{}, destination.Publisher{}},
		{wmnats.JetStreamConfig{TrackMsgID: true}, &wmnats.GobMarshaler{}, destination.Publisher{}},
		{wmnats.JetStreamConfig{AutoProvision: true, Disabled: true}, &wmnats.NATSMarshaler{},
			destination.Publisher{Unconfirmed: true}},
	} {
		pub := testkit.Must(wmnats.NewPublisherWithNatsConn(&nats.Conn{},
			wmnats.PublisherPublishConfig{Marshaler: c.marshaler, SubjectCalculator: wmnats.DefaultSubjectCalculator, JetStream: c.config}, nil))
		got := destination.PublisherOf(reflect.ValueOf(pub).Elem())
		met(t, "github.com/ThreeDotsLabs/watermill-nats/pkg/nats.Publisher", got != nil && reflect.DeepEqual(*got, c.want))
	}
	for tracks, want := range map[bool]string{true: "PublisherConfig.TrackMessageID", false: ""} {
		pub := testkit.Must(jetstream.NewPublisher(jetstream.PublisherConfig{Conn: &nats.Conn{}, TrackMessageID: tracks}))
		got := destination.PublisherOf(reflect.ValueOf(pub).Elem())
		met(t, "github.com/ThreeDotsLabs/watermill-nats/pkg/jetstream.Publisher", got != nil && reflect.DeepEqual(*got, destination.Publisher{Deduplicates: want}))
	}
}

func TestFactSubscribers(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	stream := testkit.Must(
		redisstream.NewSubscriber(redisstream.SubscriberConfig{Client: client, MaxIdleTime: time.Hour}, nil))
	for row, sub := range map[string]any{
		"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream.Subscriber": stream,
		"github.com/ThreeDotsLabs/watermill-nats/pkg/nats.Subscriber":               &wmnats.Subscriber{},
		"github.com/ThreeDotsLabs/watermill-nats/pkg/jetstream.Subscriber":          &jetstream.Subscriber{},
	} {
		want := hold.Subscriber{After: 30 * time.Second}
		if sub == stream {
			want.After = time.Hour
		}
		got := hold.SubscriberOf(reflect.ValueOf(sub).Elem())
		met(t, row, got != nil && *got == want)
	}
}

// What clients say is what the table has.
func TestFactTexts(t *testing.T) {
	for text, err := range map[string]error{
		"nats: no responders available for request": nats.ErrNoResponders,
		"nats: no response from stream":             nats.ErrNoStreamResponse,
		"nats: no servers available for connection": nats.ErrNoServers,
		"nats: connection closed":                   nats.ErrConnectionClosed,
		"nats: outbound buffer limit exceeded":      nats.ErrReconnectBufExceeded,
		"nats: timeout":                             nats.ErrTimeout,
		"nats: message could not decode headers":    nats.ErrBadHeaderMsg,
		"redis: client is closed":                   redis.ErrClosed,
		"redis: connection pool timeout":            redis.ErrPoolTimeout,
		"circuit breaker is open":                   gobreaker.ErrOpenState,
		"too many requests":                         gobreaker.ErrTooManyRequests,
		"circuit breaker open":                      circuitbreaker.ErrOpen,
		"bulkhead full":                             bulkhead.ErrFull,
		"rate limit exceeded":                       ratelimiter.ErrExceeded,
		"timeout exceeded":                          timeout.ErrExceeded,
	} {
		testkit.Check(t, err.Error() == text, "%q is %q now: correct its row in internal/upstream/foreign", text, err)
	}
}

func TestFactErrors(t *testing.T) {
	refused := proto.Unmarshal([]byte{10, 3, 0xff}, &structpb.Struct{})
	_, unconnected := pgconn.Connect(t.Context(), "postgres://127.0.0.1:1/x?sslmode=disable&connect_timeout=1")
	tooLong := protodelim.UnmarshalOptions{MaxSize: 1}.UnmarshalFrom(bytes.NewReader([]byte{9, 1}), &structpb.Struct{})
	for _, c := range []struct {
		row  string
		err  error
		kind foreign.Kind
	}{
		{"github.com/Shopify/sarama.KError", oldsarama.ErrMessageSizeTooLarge, foreign.Kafka},
		{"github.com/segmentio/kafka-go.Error", kafka.MessageSizeTooLarge, foreign.Kafka},
		{"github.com/twmb/franz-go/pkg/kerr.Error", kerr.MessageTooLarge, foreign.Kafka},
		{"github.com/streadway/amqp.Error", &amqp.Error{Code: 501, Server: true, Reason: "x"}, foreign.AMQP},
		{"github.com/jackc/pgconn.connectError", unconnected, foreign.Connect},
		{"connectrpc.com/connect.Error", connect.NewError(connect.CodeUnavailable, errors.New("x")), foreign.RPC},
		{"github.com/nats-io/nats.go.jsError", nats.ErrStreamNotFound, foreign.Plain},
		{"github.com/pkg/errors.fundamental", pkgerrors.New("x"), foreign.Traced},
		{"github.com/pkg/errors.withMessage", pkgerrors.WithMessage(errors.New("x"), "y"), foreign.Notified},
		{"github.com/cenkalti/backoff.RetryAfterError", backoff.RetryAfter(7), foreign.RetryAfter},
		{"github.com/cenkalti/backoff.PermanentError", backoff.Permanent(errors.New("x")), foreign.Permanent},
		{"google.golang.org/protobuf/internal/errors.prefixError", refused, foreign.Unreadable},
		{"google.golang.org/protobuf/internal/errors.wrapError", tooLong, foreign.Unreadable},
	} {
		testkit.Require(t, c.err != nil, "%v", c.row)
		e := foreign.ErrorOf(c.err)
		met(t, c.row, e.Kind == c.kind && (c.kind != foreign.Kafka || e.Code() == 10) && (c.kind != foreign.AMQP || e.ByServer()))
	}
	met(t, "github.com/jackc/pgconn.PgError", foreign.ErrorOf(&pgconn.PgError{Severity: "FATAL"}).Text() == "FATAL")
	wait := foreign.ErrorOf(backoff.RetryAfter(7)).Wait()
	testkit.Check(t, wait == 7*time.Second, "%v", wait)
}

// What a newer pgx says is what the table has: "conn closed".
func TestFactConnClosed(t *testing.T) {
	text := pgconn5.ErrConnClosed.Error()
	testkit.Check(t, text == "conn closed" && foreign.Says(text, foreign.Lost),
		"%q: look at what it says now, and correct its row", text)
}
