package wmkafka

import (
	"bytes"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
)

// Features D4, D16, promise P4: what a topic takes can be set aside, and brought back, however it came: compressed, as
// one that is far larger than the topic's limit, with so many headers that the client overrates it, with a key as large
// as the topic takes, with a time that is none, with the header of Watermill's id under our prefix. A message behind it
// goes on.
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
