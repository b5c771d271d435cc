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
	_, written := c.transactions(1)
	last := written[len(written)-1]
	came := c.placedInTurn(last)
	testkit.Check(t, slices.Equal(came, written), "%v came, written were %v", came, written)
}

// transactions writes four transactions of three records, of which some are aborted, and returns what is committed.
func (c *cluster) transactions(aborted ...int) (ids []string, offsets []int64) {
	c.Helper()
	producer := c.newProducer(func(config *sarama.Config) {
		config.Producer.Idempotent, config.Producer.Transaction.ID = true, c.topic
	})
	for round := range 4 {
		testkit.NoError(c, producer.BeginTxn())
		end := producer.CommitTxn
		if slices.Contains(aborted, round) {
			end = producer.AbortTxn
		}
		for i := range 3 {
			record := identified(fmt.Sprint(round, "-", i))
			record.Topic = c.topic
			_, offset, err := producer.SendMessage(record)
			testkit.NoError(c, err)
			if !slices.Contains(aborted, round) {
				ids, offsets = append(ids, fmt.Sprint(round, "-", i)), append(offsets, offset)
			}
		}
		testkit.NoError(c, end())
	}
	return ids, offsets
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
	testkit.Check(t, slices.IsSorted(came) && len(came) >= keys && came[len(came)-keys] == last-keys+1, "%v came", came)
}

// count is the number of records up to the last one.
func (c *cluster) count(last int64) (n int64) {
	c.Helper()
	consumer := testkit.Must(sarama.NewConsumerFromClient(c.admin.client))
	defer func() { _ = consumer.Close() }()
	claim := testkit.Must(consumer.ConsumePartition(c.topic, 0, sarama.OffsetOldest))
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
	testkit.Check(c, c.committed() <= came[0], "more is committed, and %d is being placed", came[0])
	for _, msg := range slices.Backward(open) {
		msg.Ack()
	}
	c.eventually("all is committed", func() bool { return c.committed() == last+1 })
	return came
}
