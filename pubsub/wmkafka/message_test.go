package wmkafka

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
)

func newAttempt() (a *attempt, endSession context.CancelFunc) {
	session, end := context.WithCancel(context.Background())
	return &attempt{of: &recordContext{Context: session, record: &sarama.ConsumerMessage{Offset: 7}, group: "g"}}, end
}

// Promise P3: a message's context ends with the session and with its own settlement, in whichever order it is asked and
// ended, as a context of package context does.
func TestAttemptEnds(t *testing.T) {
	for _, asked := range []string{"before", "after", "through a derived context"} {
		for _, ends := range []string{"session", "attempt", "both"} {
			t.Run(asked+" "+ends, func(t *testing.T) {
				a, endSession := newAttempt()
				defer endSession()
				testkit.Require(t, a.Err() == nil && (context.Cause(a) == nil || asked != "before"), "it has ended")
				var ctx context.Context = a
				switch asked {
				case "before":
					a.Done()
				case "through a derived context":
					derived, cancel := context.WithCancel(context.WithValue(a, recordContextKey{}, 1))
					defer cancel()
					ctx = derived
				}
				if ends != "attempt" {
					endSession()
				}
				if ends != "session" {
					a.cancel()
					a.cancel()
				}
				select {
				case <-ctx.Done():
				default:
					t.Fatal("it has not ended")
				}
				for _, err := range []error{ctx.Err(), a.Err(), context.Cause(ctx)} {
					testkit.Is(t, err, context.Canceled)
				}
			})
		}
	}
}

// Promise P5: a message costs no goroutine, nor does a context that a handler derives from its own: package context
// finds the cancellable one.
func TestAttemptStartsNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 100 {
		a, endSession := newAttempt()
		defer endSession()
		_, cancel := context.WithCancel(context.WithValue(a, recordContextKey{}, 1))
		defer cancel()
	}
	started := runtime.NumGoroutine() - before
	testkit.Check(t, started <= 50, "100 contexts started %d goroutines", started)
}

// Promise P5: what a delivery allocates: the message with its two channels and its map, the delivery with its context,
// and one text of all headers.
func TestAllocDelivery(t *testing.T) {
	record := &sarama.ConsumerMessage{Value: []byte("0000000")}
	for _, name := range []string{"_watermill_message_uuid", "a", "bb", "ccc", "dddd", "eeeee"} {
		record.Headers = append(record.Headers, &sarama.RecordHeader{Key: []byte(name), Value: []byte("a value of some length")})
	}
	s := subscriptionOf(t, SubscriberConfig{}, true)
	s.output = make(chan *message.Message, 1)
	g := newGroup(t, 0)
	defer g.end()
	s.tenure = s.begin(g, graceful.TimeoutOf(g.Context()))
	least := 100.0 // what else runs in the process allocates too
	for range 5 {
		least = min(least, testing.AllocsPerRun(100, func() {
			d := s.deliver(s.tenure.work, record)
			d.send()
			(<-s.output).Ack()
			testkit.Check(t, d.settled(d.of.Done()) == acked, "it is not acked")
			d.cancel()
		}))
	}
	testkit.Check(t, least <= 8, "%v allocations, want at most 8", least)
}

// A message's metadata is a copy: sarama's buffer of the records around it may go.
func TestHeadersAreCopied(t *testing.T) {
	for _, long := range []int{1, maxHeaderText} {
		value := []byte(strings.Repeat("v", long))
		record := &sarama.ConsumerMessage{Headers: []*sarama.RecordHeader{
			{Key: []byte("a"), Value: value}, nil, {Key: []byte("empty")}, {Value: []byte("nameless")}, {Key: []byte("z"), Value: []byte("last")},
		}}
		msg := plainMessage(record)
		for _, h := range record.Headers {
			if h != nil {
				clear(h.Key)
				clear(h.Value)
			}
		}
		want := message.Metadata{"a": strings.Repeat("v", long), "empty": "", "": "nameless", "z": "last"}
		testkit.Check(t, maps.Equal(msg.Metadata, want), "%q", msg.Metadata)
	}
}

// Features D4, D16, promise P4: what a topic takes can be set aside, and brought back, however it came: compressed, as
// one that is far larger than the topic's limit, with so many headers that the client overrates it, with a key as large
// as the topic takes, with a time that is none, with the header of Watermill's id under our prefix.
func TestWhateverArrivesIsSetAside(t *testing.T) {
	t.Parallel()
	headers := func(n int) (all []sarama.RecordHeader) {
		for i := range n {
			all = append(all, header(fmt.Sprintf("%x", i), ""))
		}
		return all
	}
	const most = 200_000 // of the topic
	id := header(kafka.UUIDHeaderKey, "hard")
	records := map[string]*sarama.ProducerMessage{
		"compressed":     {Value: sarama.ByteEncoder(bytes.Repeat([]byte("spillway "), 1<<20)), Headers: []sarama.RecordHeader{id}},
		"20000 headers":  {Value: sarama.ByteEncoder("x"), Headers: append(headers(20_000), id)},
		"key of its own": {Key: sarama.ByteEncoder(bytes.Repeat([]byte{0xff}, most-200)), Headers: []sarama.RecordHeader{id}},
		"past time":      {Value: sarama.ByteEncoder("x"), Timestamp: time.UnixMilli(1), Headers: []sarama.RecordHeader{id}},
		"future time":    {Value: sarama.ByteEncoder("x"), Timestamp: time.UnixMilli(math.MaxInt64 / 2), Headers: []sarama.RecordHeader{id}},
		"reserved names": {Value: sarama.ByteEncoder("x"), Headers: []sarama.RecordHeader{id, header(reservedPrefix+kafka.UUIDHeaderKey, "a"), header("", "b"), {Key: []byte("null")}}},
	}
	c := newCluster(t)
	producer := c.newProducer(func(config *sarama.Config) {
		config.Producer.Compression, config.Producer.MaxMessageBytes = sarama.CompressionZSTD, 32<<20
	})
	pub := c.publisher(PublisherConfig{Sarama: sends(most + letterRoom)})
	for name, record := range records {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := c.topic + "-" + strings.ReplaceAll(name, " ", "-")
			own := *c
			own.TB, own.topic, own.group = t, topic, topic
			own.create(topic, 1, map[string]string{"max.message.bytes": strconv.Itoa(most)})
			own.deleteLater(topic+".dlq", topic+".invalid")
			stop := own.run(own.subscriber(SubscriberConfig{}), own.channel(spillway.Config{Publisher: pub}).Attach, func(msg *message.Message) error {
				if msg.UUID != "good" {
					return classify.Permanent(errBad)
				}
				return nil
			})
			good := identified("good")
			record.Topic, good.Topic = topic, topic
			testkit.NoError(t, producer.SendMessages([]*sarama.ProducerMessage{record, good}))
			own.eventually("both are acked", func() bool { return own.committed() == 2 })
			stop()
			dead := own.records(topic+".dlq", 1)
			testkit.Require(t, len(dead) == 1, "%d letters", len(dead))
			l := testkit.Must(poison.Decode(unmarshal(t, Marshaler{}, dead[0])))
			testkit.NoError(t, pub.Publish(topic, l.Redriven("ada", "campaign", time.Now())))
			all := own.records(topic, 1)
			was, back := text(withoutOurs(all[0])), text(withoutOurs(all[2]))
			if name == "key of its own" { // it stays behind where a letter is brought back from metadata alone
				was = strings.Replace(was, text(&sarama.ConsumerMessage{Key: all[0].Key})[:len(text(&sarama.ConsumerMessage{Key: all[0].Key}))-len(" value null")], "key null", 1)
			}
			testkit.Check(t, was == back, "came back as\n%.300s, was\n%.300s", back, was)
		})
	}
}

// Feature D4: a client without TLS that is answered by a TLS listener is refused, and not for the size of a message.
func TestTLSListenerIsNoRefusalForSize(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	defer func() { _ = listener.Close() }()
	go func() {
		if conn, err := listener.Accept(); err == nil { // a fatal alert and the end, as of a TLS listener
			_, _ = conn.Read(make([]byte, 1<<10))
			_, _ = conn.Write([]byte("\x15\x03\x03\x00\x02\x02\x50\x15\x03\x03\x00\x02\x01\x00"))
			_ = conn.Close()
		}
	}()
	config := publisherDefaults()
	config.Metadata.Retry.Max = 0
	broker := sarama.NewBroker(listener.Addr().String())
	testkit.NoError(t, broker.Open(config))
	defer func() { _ = broker.Close() }()
	_, err = broker.GetMetadata(&sarama.MetadataRequest{})
	testkit.Require(t, err != nil, "sarama understood the answer")
	// what sarama says of it before 1.46, and since
	earlier := sarama.PacketDecodingError{Info: "message of length 352518912 too large or too small"}
	for _, err := range []error{err, earlier} {
		err := fmt.Errorf("publish: %w", err)
		testkit.Check(t, !isTooLarge(err) && !(*classify.Classifier)(nil).IsTooLarge(err),
			"%v is a refusal for size", err)
	}
}
