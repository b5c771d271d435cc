package wmkafka

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/redrive"
)

// Features V1, V10, promise P6: a drain whose group has lost its offsets, or never had any, begins with the oldest
// message only if that was chosen. Else letters that were redriven come twice, without a word.
func TestDrainWithoutOffsets(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := c.topic + ".dlq"
	c.create(topic, 2, nil)
	live := &testkit.Kept{}
	drain := func(fromBeginning bool) (redrive.Report, error) {
		sub := c.subscriber(SubscriberConfig{})
		defer c.closes(sub)
		return redrive.DrainTopic(t.Context(), sub, live, redrive.DrainTopicConfig{
			Rules: redrive.Rules{Allow: []string{c.topic}}, Topic: topic, Park: &testkit.Kept{}, Backlog: sub.Backlog,
			FromBeginning: fromBeginning, IdleAfter: testkit.Patience,
		})
	}
	report, err := drain(false)
	testkit.Check(t, err == nil && report.Taken == 0, "of an empty topic: %+v, %v", report, err)
	c.produce(append(letterRecords(c, topic, 0, "a", "b"), letterRecords(c, topic, 1, "c")...)...)
	testkit.Says(t, testkit.Err(drain(false)), "FromBeginning")
	testkit.Equal(t, "redriven", testkit.Must(drain(true)).Redriven, 3)
	c.produce(letterRecords(c, topic, 1, "d")...)
	testkit.Equal(t, "redriven", testkit.Must(drain(false)).Redriven, 1)
	c.eventually("the group is gone", func() bool { return c.admin.DeleteConsumerGroup(c.group) == nil })
	testkit.Says(t, testkit.Err(drain(false)), "FromBeginning")
	testkit.Equal(t, "redriven", len(live.Taken()), 4)
}

// Promise P6: the offsets of a group without members outlive the broker's offsets.retention.minutes. So a service that
// was stopped for longer goes on where it was, and a drain too.
func TestOffsetsOutliveTheirRetention(t *testing.T) {
	t.Parallel()
	brokers, _ := services.OwnKafka(t, "offsets.retention.minutes=1\noffsets.retention.check.interval.ms=1000")
	c := &cluster{TB: t, brokers: brokers, topic: "orders-" + rand.Text(), group: "billing-" + rand.Text()}
	c.admin = testkit.Must(connectAdmin(brokers, publisherDefaults()))
	c.cleanup(c.admin.Close)
	c.producer = c.newProducer(func(*sarama.Config) {})
	c.create(c.topic, 1, nil)
	c.produce(numbered(3)...)
	take := func(sub message.Subscriber, n int) {
		messages := c.subscribe(sub)
		for range n {
			c.next(messages).Ack()
		}
		c.closes(sub)
	}
	for range 2 { // the second session begins with offsets that are pinned, and ends with others
		c.produce(numbered(3)...)
		take(c.subscriber(SubscriberConfig{}), 3)
	}
	waiting, subscriber, err := NewStages(brokers, "shop", SubscriberConfig{}, PublisherConfig{})
	testkit.NoError(t, err)
	c.cleanup(waiting.Close)
	d := newDesk(c)
	stop := d.consume(subscriber, c.topic)
	d.untilTaken(3)
	stop()
	theirs := "others-" + rand.Text()
	request := &sarama.OffsetCommitRequest{Version: 2, ConsumerGroup: theirs, RetentionTime: -1,
		ConsumerGroupGeneration: sarama.GroupGenerationUndefined}
	request.AddBlock(c.topic, 0, 1, 0, "")
	_, err = testkit.Must(c.admin.client.Coordinator(theirs)).CommitOffset(request)
	testkit.NoError(t, err)
	offset := func(group string) int64 {
		response := testkit.Must(c.admin.ListConsumerGroupOffsets(group, map[string][]int32{c.topic: {0}}))
		return response.GetBlock(c.topic, 0).Offset
	}
	testkit.Check(t, offset(c.group) == 6 && offset(theirs) == 1, "%d and %d are committed", offset(c.group), offset(theirs))
	for until := time.Now().Add(4 * time.Minute); offset(theirs) >= 0; time.Sleep(time.Second) {
		testkit.Require(t, time.Now().Before(until), "the broker forgets no offsets")
	}
	testkit.Equal(t, "committed, when others are forgotten", offset(c.group), 6)
	testkit.Equal(t, "committed of the stage, when others are forgotten", offset(c.topic), 9)
}
