package wmkafka

import (
	"time"

	"github.com/IBM/sarama"
)

// defaultMaxMessageBytes is what Kafka's own default for a topic lets through, with room for a letter's metadata.
const defaultMaxMessageBytes = kafkaMaxMessageBytes + letterRoom

// subscriberDefaults returns what SubscriberConfig.Sarama is called with. What it sets, and why:
//
//   - it starts with the oldest message: what came before the first start is not skipped;
//   - messages of aborted transactions are not delivered;
//   - a heartbeat every second, so that a rebalance is noticed within one, and members that hold it up for more than 8
//     s are left out of it;
//   - time-outs with which a broker that has fallen silent is noticed within 30 s;
//   - no limit on the size of a record: the topic has one.
func subscriberDefaults() *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = "spillway"
	config.Net.DialTimeout = 5 * time.Second
	config.Net.ReadTimeout = 10 * time.Second // must be longer than a rebalance: the answer to a join comes after it
	config.Net.WriteTimeout = 5 * time.Second
	config.Metadata.Retry.Max = 1 // a heartbeat that failed so often ends the session
	config.Metadata.Timeout = 10 * time.Second
	config.Metadata.AllowAutoTopicCreation = false
	config.Consumer.Return.Errors = true
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Retry.Backoff = 500 * time.Millisecond
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.Retry.Max = 1
	config.Consumer.Group.Heartbeat.Interval = time.Second
	config.Consumer.Group.Rebalance.Timeout = 8 * time.Second
	config.Consumer.Group.Rebalance.Retry.Max = 10
	config.Consumer.Group.Rebalance.Retry.Backoff = 500 * time.Millisecond
	return config
}

// publisherDefaults returns what PublisherConfig.Sarama is called with. What it sets, and why:
//
//   - acks from all replicas in sync, and a producer that is not idempotent: what was confirmed is there. Sarama's
//     idempotent producer (1.43.3, async_producer.go, returnError) begins a new epoch when it gives a record up.
//     Records that it tries again keep their old numbers, the broker takes them for others, and they are confirmed and
//     lost. Without it a record whose confirm was lost with the connection can be there twice, as after a restart;
//   - time-outs and retries with which Publish returns within 30 s, whatever the broker does not do;
//   - no topic comes into being by being published to: a topic that the broker makes up loses its letters after 7 days;
//   - sarama's hash partitioner: records with the same key go to the same partition. Its hash (FNV-1a) is not the one
//     of Java clients and librdkafka (murmur2): where those produce too, give Producer.Partitioner one that agrees.
func publisherDefaults() *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = "spillway"
	config.Net.DialTimeout = 3 * time.Second
	config.Net.ReadTimeout = 6 * time.Second
	config.Net.WriteTimeout = 3 * time.Second
	config.Net.MaxOpenRequests = 1 // or a record that is tried again comes behind later ones
	config.Metadata.Retry.Max = 2
	config.Metadata.Retry.Backoff = 200 * time.Millisecond
	config.Metadata.Timeout = 5 * time.Second
	config.Metadata.AllowAutoTopicCreation = false
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Timeout = 5 * time.Second
	config.Producer.Retry.Max = 3
	config.Producer.Retry.Backoff = 200 * time.Millisecond
	config.Producer.Return.Successes = true
	config.Producer.Return.Errors = true
	config.Producer.MaxMessageBytes = defaultMaxMessageBytes
	return config
}
