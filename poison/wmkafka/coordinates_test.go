package wmkafka

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/poison"
)

// Features I5, I9: coordinates are a key, the same when the message comes back by a redrive, and not those that a message
// claims to have from elsewhere.
func TestByCoordinates(t *testing.T) {
	c := newCluster(t)
	c.produce(&sarama.ProducerMessage{Topic: c.topic, Value: sarama.StringEncoder("a")}, &sarama.ProducerMessage{Topic: c.topic, Value: sarama.StringEncoder("b")})
	messages := c.subscribe(c.subscriber(SubscriberConfig{}))
	c.next(messages).Ack()
	second := c.next(messages)
	want := c.topic + "/0/1"
	if key, err := ByCoordinates(second); err != nil || key != want {
		t.Errorf("%q, %v", key, err)
	}
	letter := poison.Letter{Original: second, Origin: Origin(second)}
	second.Ack()
	redriven := letter.Redriven("me", "campaign", time.Now())
	if err := c.publisher(PublisherConfig{}).Publish(c.topic, redriven); err != nil {
		t.Fatal(err)
	}
	third := c.next(messages)
	if key, err := ByCoordinates(third); err != nil || key != want {
		t.Errorf("redriven: %q, %v", key, err)
	}
	for key, value := range map[string]string{
		poison.KeyOriginalTopic: "another", poison.KeyOriginalOffset: "-1", poison.KeyOriginalPartition: "x/y", poison.KeyRedriveCount: "0",
	} {
		forged := third.CopyWithContext()
		forged.Metadata.Set(key, value)
		if key, err := ByCoordinates(forged); err != nil || key != c.topic+"/0/2" {
			t.Errorf("%s %q: %q, %v", key, value, key, err)
		}
	}
	third.Ack()
	if _, err := ByCoordinates(message.NewMessage("1", nil)); (*classify.Classifier)(nil).Classify(err).Class != classify.ClassInvalid {
		t.Error(err)
	}
}
