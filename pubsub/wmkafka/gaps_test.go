package wmkafka

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

// transact writes records in one transaction, and commits or aborts it.
func (c *cluster) transact(commit bool, records ...*sarama.ProducerMessage) {
	c.Helper()
	producer := c.newProducer(func(config *sarama.Config) {
		config.Producer.Partitioner = sarama.NewManualPartitioner
		config.Producer.Idempotent = true
		config.Producer.Transaction.ID = "tx-" + rand.Text()
		config.Producer.Transaction.Retry.Backoff = 10 * time.Millisecond
	})
	testkit.NoError(c, producer.BeginTxn())
	for _, record := range records {
		_, _, err := producer.SendMessage(record)
		testkit.NoError(c, err)
	}
	if commit {
		testkit.NoError(c, producer.CommitTxn())
	} else {
		testkit.NoError(c, producer.AbortTxn())
	}
}

// letterRecords are records of n letters of a topic.
func letterRecords(c *cluster, topic string, partition int32, names ...string) (records []*sarama.ProducerMessage) {
	c.Helper()
	for _, name := range names {
		l := poison.Letter{Original: message.NewMessage(name, []byte(name)),
			Origin: poison.Origin{Topic: c.topic, Handler: "billing", MessageID: name}}
		l.Failure.Reason = "no_such_customer"
		record := testkit.Must(Marshaler{}.Marshal(topic, l.Encode()))
		record.Partition = partition
		records = append(records, record)
	}
	return records
}

// Decision 10: offsets without a message are no messages: control records, aborted transactions, and what a compaction
// took. A drain takes what is there, and ends; a dry run and a backlog count it.
func TestOffsetsWithoutMessages(t *testing.T) {
	t.Parallel()
	for name, fill := range map[string]func(c *cluster, topic string) (want []string){
		"transactions": func(c *cluster, topic string) (want []string) {
			for i := range 5 {
				id := func(what string) string { return fmt.Sprint(what, i) }
				c.transact(true, append(letterRecords(c, topic, 0, id("a"), id("b")), letterRecords(c, topic, 1, id("c"))...)...)
				c.transact(false, letterRecords(c, topic, int32(i%2), id("aborted"))...)
				want = append(want, id("a"), id("b"), id("c"))
			}
			c.produce(letterRecords(c, topic, 1, "plain")...)
			c.transact(false, letterRecords(c, topic, 0, "aborted at the end")...)
			return append(want, "plain")
		},
		"nothing but control records": func(c *cluster, topic string) []string {
			for range 3 {
				c.transact(false, letterRecords(c, topic, 1, "aborted")...)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			topic := c.topic + ".dlq"
			c.create(topic, 2, nil)
			want := fill(c, topic)
			slices.Sort(want)
			sub := c.subscriber(SubscriberConfig{})
			backlog := func() int { return testkit.Must(sub.Backlog(t.Context(), topic)) }
			testkit.Equal(t, "backlog", backlog(), len(want))
			var seen []string
			testkit.NoError(t, sub.Browse(t.Context(), topic, func(msg *message.Message) bool {
				seen = append(seen, msg.UUID)
				return true
			}))
			slices.Sort(seen)
			testkit.Equal(t, "browsed", strings.Join(seen, " "), strings.Join(want, " "))
			live := &testkit.Kept{}
			report, err := redrive.DrainTopic(t.Context(), sub, live, redrive.DrainTopicConfig{
				Rules: redrive.Rules{Allow: []string{c.topic}}, Topic: topic, Park: &testkit.Kept{},
				IdleAfter: 2 * testkit.Patience, Backlog: func(ctx context.Context, topic string) (int, error) { return backlog(), nil },
				FromBeginning: true,
			})
			testkit.NoError(t, err)
			testkit.Check(t, report.Taken == len(want) && report.Redriven == len(want), "%+v of %d", report, len(want))
			c.eventually("nothing is left", func() bool { return backlog() == 0 })
		})
	}
}
