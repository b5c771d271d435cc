package wmkafka

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hold/due"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// desk stands for the stages of a service. It counts what it takes by id.
type desk struct {
	*cluster
	group string
	until func(*message.Message, time.Time) time.Time
	take  func(*message.Message)

	mu    sync.Mutex
	taken map[string]int
}

func newDesk(c *cluster) *desk {
	return &desk{cluster: c, group: "service-" + rand.Text(), taken: map[string]int{},
		until: func(_ *message.Message, arrived time.Time) time.Time { return arrived },
		take:  func(msg *message.Message) { msg.Ack() }}
}

// instance is one more of the service: a subscriber for each of its stages.
type instance func(topic, group string) (message.Subscriber, error)

func (d *desk) stages() instance { return d.stagesWith(SubscriberConfig{}) }

func (d *desk) stagesWith(config SubscriberConfig) instance {
	d.Helper()
	waiting, subscriber, err := NewStages(d.brokers, d.group, config, PublisherConfig{})
	testkit.NoError(d, err)
	d.cleanup(waiting.Close)
	return subscriber
}

// consume subscribes one instance to a topic until the returned function is called, which returns when all is
// committed.
func (d *desk) consume(waiting instance, topic string) (stop func()) {
	d.Helper()
	return testkit.Must(d.begin(waiting, topic))
}

func (d *desk) begin(waiting instance, topic string) (stop func(), err error) {
	d.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended, err := testkit.Must(waiting(topic, topic)).Subscribe(due.With(ctx, due.Stage{
		Until: d.until, Take: func(msg *message.Message) { d.note(msg); d.take(msg) },
	}), topic)
	if err != nil {
		cancel()
		return nil, err
	}
	stop = sync.OnceFunc(func() {
		cancel()
		testkit.Within(d, "the subscription has ended", func() {
			for range ended {
				d.Error("a message came through the channel")
			}
		})
	})
	d.Cleanup(stop)
	return stop, nil
}

func (d *desk) note(msg *message.Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.taken[msg.UUID]++
}

func (d *desk) times() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.taken)
}

func (d *desk) untilTaken(n int) {
	d.Helper()
	d.eventually(fmt.Sprint(n, " messages are taken"), func() bool { return len(d.times()) >= n })
}

// behind is how many messages of a topic the group of all stages has not acked.
func (d *desk) behind(topic string) int {
	d.Helper()
	return d.cluster.behind(topic, d.group)
}

func (d *desk) send(pub message.Publisher, topic string, ids ...string) {
	d.Helper()
	for _, id := range ids {
		testkit.NoError(d, pub.Publish(topic, message.NewMessage(id, []byte(id))))
	}
}

func named(name string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprint(name, "-", i))
	}
	return ids
}

// Feature R5: a message is not handed over before it is due, and those that wait hold up neither another partition nor
// another topic.
func TestStagesWaitAlone(t *testing.T) {
	t.Parallel()
	d := newDesk(newPartitioned(t, 2))
	second := d.topic + ".second"
	d.create(second, 1, nil)
	release := make(chan struct{})
	d.until = func(msg *message.Message, arrived time.Time) time.Time {
		if strings.HasPrefix(msg.UUID, "waits") {
			return arrived.Add(time.Hour)
		}
		return arrived
	}
	d.take = func(msg *message.Message) {
		<-release
		msg.Ack()
	}
	for _, id := range named("waits", 100) { // more than the window
		d.produce(identified(id))
	}
	for i := range 10 {
		a, b := identified(fmt.Sprint("a-", i)), identified(fmt.Sprint("b-", i))
		a.Partition, b.Topic = 1, second
		d.produce(a, b)
	}
	waiting := d.stages()
	one, other := d.consume(waiting, d.topic), d.consume(waiting, second)
	d.untilTaken(20) // at the same time
	close(release)
	d.eventually("they are committed", func() bool { return d.behind(second) == 0 && d.behind(d.topic) == 100 })
	one()
	other()
	for id := range d.times() {
		testkit.Check(t, !strings.HasPrefix(id, "waits"), "%s is taken early", id)
	}
}

// Feature R5, promise P4: a partition of which enough waits, and whose fetching so is paused, goes on after a rebalance.
// Newer versions of sarama keep a partition paused that comes again to the same member.
func TestStagesPausedOverRebalance(t *testing.T) {
	t.Parallel()
	d := newDesk(newCluster(t))
	second := d.topic + ".second"
	d.create(second, 1, nil)
	var looked atomic.Int64
	var ready atomic.Bool
	d.until = func(_ *message.Message, arrived time.Time) time.Time {
		if looked.Add(1); ready.Load() {
			return arrived
		}
		return arrived.Add(time.Hour)
	}
	for _, id := range named("waits", 60) {
		record := identified(id)
		record.Value = sarama.ByteEncoder(make([]byte, usualBacklog/10))
		d.produce(record)
	}
	waiting := d.stages()
	d.consume(waiting, d.topic)
	d.eventually("the window is full, and the backlog", func() bool { return looked.Load() == stagesInFlight })
	ready.Store(true)
	d.consume(waiting, second)
	d.untilTaken(60)
	d.eventually("all is committed", func() bool { return d.behind(d.topic) == 0 })
}

// Feature R5: a stage topic that is deleted stops its own messages alone.
func TestStagesTopicDeleted(t *testing.T) {
	t.Parallel()
	d := newDesk(newCluster(t))
	second := d.topic + ".second"
	d.create(second, 1, nil)
	pub := d.publisher(PublisherConfig{})
	waiting := d.stages()
	d.consume(waiting, d.topic)
	d.consume(waiting, second)
	d.send(pub, second, "second")
	d.untilTaken(1)
	testkit.NoError(t, d.admin.DeleteTopic(second))
	d.send(pub, d.topic, named("a", 3)...)
	d.untilTaken(4)
	d.eventually("the member has noticed", func() bool {
		groups, err := d.admin.DescribeConsumerGroups([]string{d.group})
		if err != nil || groups[0].State != "Stable" {
			return false
		}
		for _, member := range groups[0].Members {
			if metadata, err := member.GetMemberMetadata(); err == nil && len(metadata.Topics) == 1 {
				return true
			}
		}
		return false
	})
	d.eventually("the topic can be created again", func() bool {
		return d.admin.CreateTopic(second, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false) == nil
	})
	d.eventually("the topic has a leader", func() bool { return leaders(d.admin, second, 1) == nil })
	d.eventually("it takes messages again", func() bool {
		return pub.Publish(second, message.NewMessage("again", nil)) == nil && d.times()["again"] > 0
	})
}

// Feature R5: markers of transactions and records of aborted ones are passed over, and committed.
func TestStagesTransactions(t *testing.T) {
	t.Parallel()
	d := newDesk(newCluster(t))
	want, _ := d.transactions(1, 3)
	stop := d.consume(d.stages(), d.topic)
	d.untilTaken(6)
	d.eventually("all is committed", func() bool { return d.behind(d.topic) == 0 })
	stop()
	got := d.times()
	testkit.Check(t, slices.Equal(slices.Sorted(maps.Keys(got)), want) && len(want) == 6,
		"taken %v, want %v", got, want)
}

// Features R5, P1, promise P3: a paused member that the group expelled commits nothing later, and nothing is lost.
func TestStagesExpelled(t *testing.T) {
	t.Parallel()
	d := newDesk(newCluster(t))
	var busy sync.WaitGroup
	release := make(chan struct{})
	d.take = func(msg *message.Message) {
		if strings.HasPrefix(msg.UUID, "busy") && d.times()[msg.UUID] == 1 {
			busy.Done()
			<-release // whatever becomes of its context
		}
		msg.Ack()
	}
	pub := d.publisher(PublisherConfig{InFlight: 100})
	dialer := &faulty{}
	frozen := dialer.freezer()
	stop := d.consume(d.stagesWith(SubscriberConfig{Sarama: dialer.soon}), d.topic)
	d.send(pub, d.topic, named("done", 20)...)
	d.untilTaken(20)
	d.eventually("they are committed", func() bool { return d.behind(d.topic) == 0 })
	busy.Add(5)
	d.send(pub, d.topic, named("busy", 5)...)
	testkit.Within(d, "they are handled", busy.Wait)
	time.Sleep(1500 * time.Millisecond) // a commit that came too early has reached the broker by then
	d.cluster.group = d.group
	first := d.generation()

	frozen.Lock()
	thaw := sync.OnceFunc(frozen.Unlock)
	t.Cleanup(thaw)
	time.Sleep(time.Second) // a fetch that was on its way has come back
	d.send(pub, d.topic, named("meanwhile", 20)...)
	last := d.consume(d.stages(), d.topic)
	d.untilTaken(45)
	d.eventually("all is committed", func() bool { return d.behind(d.topic) == 0 })
	close(release)
	thaw()
	d.eventually("the first is a member again", func() bool {
		now := d.generation()
		return len(now) == 2 && !slices.Contains(now, first[0])
	})
	d.send(pub, d.topic, named("after", 20)...)
	d.untilTaken(65)
	d.eventually("all is committed again", func() bool { return d.behind(d.topic) == 0 })
	stop()
	last()
	for id, n := range d.times() {
		want := 1
		if strings.HasPrefix(id, "busy") {
			want = 2
		}
		testkit.Check(t, n == want, "%s is handled %d times, want %d", id, n, want)
	}
}

// Feature R9: a router that closes ends its own stages. Those of another router with the same Stages go on.
func TestStagesOfTwoRouters(t *testing.T) {
	t.Parallel()
	d := newDesk(newCluster(t))
	second := d.topic + ".second"
	d.create(second, 1, nil)
	waiting := d.stages()
	d.consume(waiting, second)
	for range 2 { // and a topic that was given back can be taken again
		sub := testkit.Must(waiting(d.topic, d.topic))
		ended := testkit.Must(sub.Subscribe(due.With(t.Context(), due.Stage{Until: d.until}), d.topic))
		d.closes(sub)
		testkit.Receive(t, "the subscription has ended", ended)
		testkit.Is(t, testkit.Err(sub.Subscribe(due.With(t.Context(), due.Stage{}), d.topic)), ErrClosed)
	}
	d.send(d.publisher(PublisherConfig{}), second, "goes on")
	d.untilTaken(1)
}

func TestNewStagesRefuses(t *testing.T) {
	t.Parallel()
	_, _, noBrokers := NewStages(nil, "shop", SubscriberConfig{}, PublisherConfig{})
	_, _, noGroup := NewStages([]string{"127.0.0.1:1"}, "", SubscriberConfig{}, PublisherConfig{})
	testkit.Check(t, noBrokers != nil && noGroup != nil, "%v, %v", noBrokers, noGroup)
	d := newDesk(newCluster(t))
	waiting := d.stages()
	for topic, group := range map[string]string{"": "x"} {
		testkit.Check(t, testkit.Err(waiting(topic, group)) != nil, "%q in %q", topic, group)
	}
	sub := testkit.Must(waiting(d.topic, d.topic))
	testkit.Says(t, testkit.Err(sub.Subscribe(t.Context(), d.topic)), "NewSubscriber")
}

// aside is a Delivery whose subscriber has gone on.
type aside struct{ asked atomic.Int32 }

func (*aside) Placing(context.Context, *message.Message) {}
func (a *aside) Aside() bool                             { a.asked.Add(1); return true }

// Feature R5: the publisher to stages lets a message for which nothing waits linger for others, and no other message.
func TestStagesLinger(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	waiting, _, err := NewStages(c.brokers, "service-"+rand.Text(), SubscriberConfig{}, PublisherConfig{
		linger: 5 * time.Second})
	testkit.NoError(t, err)
	c.cleanup(waiting.Close)
	hurried := func() { testkit.NoError(t, waiting.Publish(c.topic, message.NewMessage("waited for", nil))) }
	hurried() // opens its producer
	var publishing sync.WaitGroup
	lingers := &aside{}
	for range 2 {
		publishing.Go(func() {
			msg := message.NewMessage("aside", nil)
			msg.SetContext(placing.With(context.Background(), lingers))
			testkit.NoError(t, waiting.Publish(c.topic, msg))
		})
	}
	c.eventually("both linger", func() bool { return lingers.asked.Load() == 2 })
	hurried()
	publishing.Wait()
	var order []string
	for _, record := range c.records(c.topic, 1) {
		order = append(order, unmarshal(t, Marshaler{}, record).UUID)
	}
	testkit.Equal(t, "the order", fmt.Sprint(order), "[waited for waited for aside aside]")
}
