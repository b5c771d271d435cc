package wmkafka

import (
	"crypto/rand"
	"path/filepath"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
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

// Features V9, V10, promise P6: a Store collects a topic anew, after its group has lost its offsets, only if they are
// set. Else letters that were discarded or purged wait again.
func TestCollectWithoutOffsets(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := c.topic + ".dlq"
	c.create(topic, 2, nil)
	db := databases.SQLite.Open(t, "file:"+filepath.Join(t.TempDir(), "letters.db"))
	store := testkit.Must(letters.NewStore(t.Context(), db, letters.Config{Service: "shop"}))
	collect := func(r *message.Router) { r.AddPlugin(store.Collect(c.subscriber(SubscriberConfig{}), topic)) }
	is := func(status letters.Status) letters.Filter { return letters.Filter{Statuses: []letters.Status{status}} }
	count := func(f letters.Filter) int { return testkit.Must(store.Count(t.Context(), f)) }
	refused := func() {
		t.Helper()
		router := testkit.Must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
		collect(router)
		testkit.Says(t, testkit.Err(0, testkit.Starts(t, router)), "--reset-offsets")
	}

	c.produce(append(letterRecords(c, topic, 0, "a", "b"), letterRecords(c, topic, 1, "")...)...)
	stop := testkit.RunRouter(t, watermill.NopLogger{}, collect) // the first: the store knows nothing of the topic
	c.eventually("all are stored", func() bool { return count(letters.Filter{}) == 3 })
	stop()
	c.eventually("the group is gone", func() bool { return c.admin.DeleteConsumerGroup(c.group) == nil })
	testkit.Must(store.MarkAll(t.Context(), letters.Filter{}, letters.StatusDiscarded, letters.Act{By: "ada"}))
	refused()
	testkit.Equal(t, "discarded", count(is(letters.StatusDiscarded)), 3)
	testkit.Must(store.Purge(t.Context(), is(letters.StatusDiscarded), letters.Act{By: "ada"}))
	refused()
	testkit.Equal(t, "stored", count(letters.Filter{}), 0)
	request := &sarama.OffsetCommitRequest{Version: 2, ConsumerGroup: c.group, RetentionTime: -1,
		ConsumerGroupGeneration: sarama.GroupGenerationUndefined}
	request.AddBlock(topic, 0, 1, 0, "") // as kafka-consumer-groups.sh --reset-offsets does
	request.AddBlock(topic, 1, 1, 0, "")
	testkit.NoError(t, testkit.Err(testkit.Must(c.admin.client.Coordinator(c.group)).CommitOffset(request)))
	testkit.RunRouter(t, watermill.NopLogger{}, collect)
	c.eventually("it goes on", func() bool { return count(is(letters.StatusWaiting)) == 1 })
}

// Promise P6: a group has offsets as soon as it has members, so that a process that is killed before its first ack is
// not taken for one whose offsets are gone.
func TestBegunWithoutAck(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.produce(numbered(1)...)
	sub := c.subscriber(SubscriberConfig{})
	testkit.Equal(t, "begun", testkit.Must((*inner)(sub).Begun(t.Context(), c.topic)), false)
	messages := c.subscribe(sub)
	msg := c.next(messages)
	testkit.Equal(t, "begun, when a message is delivered", testkit.Must((*inner)(sub).Begun(t.Context(), c.topic)), true)
	msg.Nack()
	c.closes(sub)
	sub = c.subscriber(SubscriberConfig{})
	c.next(c.subscribe(sub)).Ack() // it is not lost
	c.closes(sub)
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
	offset := func(group string) int64 {
		response := testkit.Must(c.admin.ListConsumerGroupOffsets(group, map[string][]int32{c.topic: {0}}))
		return response.GetBlock(c.topic, 0).Offset
	}
	c.eventually("the stage has all", func() bool { return offset("shop") == 9 })
	stop()
	theirs := "others-" + rand.Text()
	request := &sarama.OffsetCommitRequest{Version: 2, ConsumerGroup: theirs, RetentionTime: -1,
		ConsumerGroupGeneration: sarama.GroupGenerationUndefined}
	request.AddBlock(c.topic, 0, 1, 0, "")
	_, err = testkit.Must(c.admin.client.Coordinator(theirs)).CommitOffset(request)
	testkit.NoError(t, err)
	testkit.Check(t, offset(c.group) == 6 && offset(theirs) == 1, "%d and %d are committed", offset(c.group), offset(theirs))
	for until := time.Now().Add(4 * time.Minute); offset(theirs) >= 0; time.Sleep(time.Second) {
		testkit.Require(t, time.Now().Before(until), "the broker forgets no offsets")
	}
	testkit.Equal(t, "committed, when others are forgotten", offset(c.group), 6)
	testkit.Equal(t, "committed of the stage, when others are forgotten", offset("shop"), 9)
}
