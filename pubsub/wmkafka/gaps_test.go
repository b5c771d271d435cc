package wmkafka

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/placing"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Promises P1, P4: in a topic that transactions were written to, messages of aborted ones are not delivered, the others
// come in order while failed ones are being placed, and at last all that was written is committed.
func TestPlacingAcrossTransactions(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	config := publisherDefaults()
	config.Producer.Idempotent, config.Producer.Transaction.ID = true, c.topic
	producer, err := sarama.NewSyncProducer(c.brokers, config)
	testkit.NoError(t, err)
	c.cleanup(producer.Close)
	var written []int64
	for round := range 4 {
		testkit.NoError(t, producer.BeginTxn())
		var offsets []int64
		for i := range 3 {
			_, offset, err := producer.SendMessage(&sarama.ProducerMessage{Topic: c.topic, Value: sarama.StringEncoder(fmt.Sprint(round, i))})
			testkit.NoError(t, err)
			offsets = append(offsets, offset)
		}
		end := producer.CommitTxn
		if round == 1 {
			end, offsets = producer.AbortTxn, nil
		}
		testkit.NoError(t, end())
		written = append(written, offsets...)
	}
	last := written[len(written)-1]
	if came := c.placedInTurn(last); !slices.Equal(came, written) {
		t.Errorf("%v came, written were %v", came, written)
	}
}

// Promises P1, P4: of a compacted topic, what is left comes in order while failed ones are being placed, and at last
// all is committed.
func TestPlacingAcrossCompaction(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.topic += "-compacted"
	c.create(c.topic, 1, map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "400", "segment.ms": "1000"})
	const keys = 4
	var last int64
	for i := range 40 {
		last = c.produce(&sarama.ProducerMessage{Key: sarama.StringEncoder(fmt.Sprint(i % keys)), Value: sarama.StringEncoder(fmt.Sprint(i))})
	}
	// Kafka looks for what to compact every 15 s. If it has not, the topic has no gaps, and all holds as well.
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline) && c.count(last) > last; time.Sleep(time.Second) {
	}
	came := c.placedInTurn(last)
	t.Logf("%d of %d records are left", len(came), last+1)
	if !slices.IsSorted(came) || len(came) < keys || !slices.Equal(came[len(came)-keys:], []int64{last - 3, last - 2, last - 1, last}) {
		t.Errorf("%v came", came)
	}
}

// count is the number of records up to the last one.
func (c *cluster) count(last int64) (n int64) {
	c.Helper()
	consumer, err := sarama.NewConsumerFromClient(c.admin.client)
	testkit.NoError(c, err)
	defer func() { _ = consumer.Close() }()
	claim, err := consumer.ConsumePartition(c.topic, 0, sarama.OffsetOldest)
	testkit.NoError(c, err)
	defer func() { _ = claim.Close() }()
	for record := range claim.Messages() {
		if n++; record.Offset == last {
			break
		}
	}
	return n
}

// placedInTurn fails each second message, and confirms the placements in the reverse order, after the last message. It
// returns the offsets that came, and waits until the last one is committed.
func (c *cluster) placedInTurn(last int64) (came []int64) {
	c.Helper()
	messages := c.subscribe(c.subscriber(SubscriberConfig{Sarama: func(config *sarama.Config) {
		config.Consumer.Offsets.AutoCommit.Enable = false // an ack is committed before the next message comes
	}}))
	var open []*message.Message
	for len(came) == 0 || came[len(came)-1] < last {
		msg := c.next(messages)
		came = append(came, msg.Context().Value(recordContextKey{}).(*recordContext).record.Offset)
		if len(came)%2 == 0 {
			msg.Ack()
			continue
		}
		go placing.Begin(msg.Context(), msg) // waits for those before it with its key
		open = append(open, msg)
	}
	if committed := c.committed(); committed > came[0] {
		c.Errorf("%d is committed, and %d is being placed", committed, came[0])
	}
	for _, msg := range slices.Backward(open) {
		msg.Ack()
	}
	c.eventually("all is committed", func() bool { return c.committed() == last+1 })
	return came
}
