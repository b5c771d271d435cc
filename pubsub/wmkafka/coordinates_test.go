package wmkafka

import (
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
)

// Feature I5, decision 15: Origin has a record's own coordinates, the same at each delivery, whatever its metadata
// claim: a key made of them is no other record's. So it is for a message that was redriven, whose metadata any producer
// could have written.
func TestOriginAtEachDelivery(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	at := time.UnixMilli(1_700_000_000_123)
	c.produce(&sarama.ProducerMessage{Value: sarama.StringEncoder("a"), Timestamp: at}, &sarama.ProducerMessage{
		Value: sarama.StringEncoder("b"), Timestamp: at, Headers: []sarama.RecordHeader{
			header(poison.KeyOriginalTopic, c.topic), header(poison.KeyOriginalPartition, "0"), header(poison.KeyOriginalOffset, "2"), header(poison.KeyRedriveCount, "1"),
		},
	})
	messages := c.subscribe(c.subscriber(SubscriberConfig{}))
	is := func(msg *message.Message, want string) {
		t.Helper()
		o := Origin(msg)
		if key := fmt.Sprint(o.Topic, "/", o.Partition, "/", o.Offset, "/", o.Timestamp.UnixMilli()); key != want {
			t.Errorf("%q, want %q", key, want)
		}
	}
	first := c.next(messages)
	is(first, c.topic+"/0/0/1700000000123")
	first.Nack()
	again := c.next(messages)
	is(again, c.topic+"/0/0/1700000000123")
	again.Ack()
	forged := c.next(messages)
	is(forged, c.topic+"/0/1/1700000000123")
	letter := poison.Letter{Original: forged, Origin: Origin(forged)}
	forged.Ack()
	testkit.NoError(t, c.publisher(PublisherConfig{}).Publish(c.topic, letter.Redriven("me", "campaign", time.Now())))
	redriven := c.next(messages)
	own, _ := kafka.MessageTimestampFromCtx(redriven.Context())
	is(redriven, fmt.Sprint(c.topic, "/0/2/", own.UnixMilli()))
	redriven.Ack()
}
