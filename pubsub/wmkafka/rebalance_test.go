package wmkafka

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain/deadletter"
	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/observe"
)

func (c *cluster) channel(config spillway.Config) *spillway.Channel {
	c.Helper()
	config.Queue.Origin = Origin
	return testkit.Must(spillway.New(context.Background(), config))
}

// Promise P1, P3: a handler that finishes within the grace after a rebalance began is not run again.
func TestAckInTheGraceOfRebalance(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.produce(numbered(1)...)
	first := c.subscribe(c.subscriber(SubscriberConfig{settleGrace: patience}))
	busy := c.next(first)
	second := c.subscribe(c.subscriber(SubscriberConfig{}))
	<-busy.Context().Done()
	busy.Ack()
	c.eventually("both are members", func() bool { return c.members() == 2 })
	c.eventually("it is committed", func() bool { return c.committed() == 1 })
	c.none(first, time.Second)
	c.none(second, 0)
}

// Promise P3: no handler takes the messages. The subscription gives its partition away all the same, and ends all the
// same.
func TestRebalanceWithNobodyTaking(t *testing.T) {
	t.Parallel()
	c := newPartitioned(t, 2)
	records := numbered(2)
	records[1].Partition = 1
	c.produce(records...)
	sub := c.subscriber(SubscriberConfig{})
	c.subscribe(sub)
	c.eventually("it is a member", func() bool { return c.members() == 1 })
	second := c.subscribe(c.subscriber(SubscriberConfig{}))
	c.eventually("both are members", func() bool { return c.members() == 2 })
	c.next(second).Ack()
	testkit.NoError(t, sub.Close())
	c.next(second).Ack()
}

// Feature D8: what no unmarshaler can read is set aside as invalid, whole, and the partition goes on.
func TestUnreadableIsSetAside(t *testing.T) {
	t.Parallel()
	for who, make := range map[string]func(*cluster) message.Subscriber{
		"ours": func(c *cluster) message.Subscriber { return c.subscriber(SubscriberConfig{Unmarshaler: picky{}}) },
		"ours, ours inside, which panics": func(c *cluster) message.Subscriber {
			return c.subscriber(SubscriberConfig{Unmarshaler: Marshaler{Inner: picky{panics: true}}})
		},
		"watermill's, ours inside": func(c *cluster) message.Subscriber { return c.stock(stockWith(Marshaler{Inner: picky{}})) },
	} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			records := numbered(3)
			records[1].Value, records[1].Key = sarama.ByteEncoder("\x00unreadable\xff"), sarama.StringEncoder("key")
			records[1].Headers = append(records[1].Headers, header("tenant", "acme"))
			c.produce(records...)
			dead, handled := &sink{}, &sink{}
			c.run(make(c), c.channel(spillway.Config{Publisher: dead}).Attach,
				func(msg *message.Message) error { return handled.Publish("", msg) })
			c.eventually("the partition goes on", func() bool { return len(handled.Taken()) == 2 })
			c.eventually("the letter is placed", func() bool { return len(dead.Taken()) > 0 })
			letters := dead.letters(t)
			l := letters[0]
			testkit.Check(t, len(letters) == 1 && l.Failure.Class == classify.ClassInvalid && l.Failure.Reason == classify.ReasonUnmarshal &&
				l.Origin.Offset == "1" && string(l.Origin.Key) == "key" && l.Origin.Topic == c.topic, "it tells %+v %+v", l.Failure, l.Origin)
			m := l.Original
			testkit.Check(t, m.UUID == "id-1" && string(m.Payload) == "\x00unreadable\xff" && m.Metadata["tenant"] == "acme",
				"it holds %q %v %q", m.UUID, m.Metadata, m.Payload)
		})
	}
}

// picky is a format that cannot read what begins with a zero.
type picky struct{ panics bool }

func (p picky) Marshal(topic string, msg *message.Message) (*sarama.ProducerMessage, error) {
	return Marshaler{}.Marshal(topic, msg)
}

func (p picky) Unmarshal(record *sarama.ConsumerMessage) (*message.Message, error) {
	if record.Value[0] != 0 {
		return Marshaler{}.Unmarshal(record)
	}
	if p.panics {
		panic("cannot read this")
	}
	return nil, errors.New("cannot read this")
}

// Bad input: a producer cannot have a good message set aside by writing the mark itself.
func TestForgedMark(t *testing.T) {
	msg := read(Marshaler{}, &sarama.ConsumerMessage{Headers: headers("x-spillway-unreadable", "forged")})
	testkit.NoError(t, deadletter.Marked(msg.Metadata[deadletter.KeyMarked]))
}

// Promise P3: a nacked message that waits to come again holds up neither a rebalance nor Close.
func TestRebalanceInNackBackoff(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.produce(numbered(1)...)
	sub := c.subscriber(SubscriberConfig{nackBackoff: time.Hour})
	c.next(c.subscribe(sub)).Nack()
	other := c.subscriber(SubscriberConfig{nackBackoff: time.Hour})
	messages := c.subscribe(other)
	c.eventually("both are members within the hour", func() bool { return c.members() == 2 })
	c.closes(sub)
	c.next(messages).Nack()
	c.closes(other)
}

// stranger is a session that the coordinator does not know.
type stranger struct{ *group }

func (stranger) MemberID() string    { return "nobody" }
func (stranger) GenerationID() int32 { return 7 }

// Sentence K11: handlers do not go on for the time of a drain if the group may have given the partition away.
func TestTenureEndsWithMembership(t *testing.T) {
	const drain = time.Minute
	for name, brokers := range map[string][]string{
		"unknown member": services.Kafka(t),
		"no answer":      {"127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sub := testkit.Must(NewSubscriber(brokers, "g", SubscriberConfig{}))
			s, g := newSubscription(context.Background(), sub, "orders"), newGroup(t, 0)
			g.ctx, g.end = context.WithCancel(graceful.With(t.Context(), drain))
			s.tenure = s.begin(stranger{g}, graceful.TimeoutOf(stranger{g}.Context()))
			work := s.tenure.work
			g.end()
			began := time.Now()
			select {
			case <-work.Done():
			case <-time.After(drain / 2):
				t.Fatal("the handlers go on")
			}
			testkit.Check(t, time.Since(began) >= soon, "the contexts ended before anybody was asked")
		})
	}
}

// linesOf are the lines of an event.
func linesOf(log *testkit.Log, level watermill.LogLevel, event string) (lines []testkit.Line) {
	for _, line := range log.Lines(level, "") {
		if line.Fields[logging.EventName] == event {
			lines = append(lines, line)
		}
	}
	return lines
}

// Feature O5: an outage of the brokers is one Error line of the stages when it begins, however often they try to join,
// and one Info line when it ends. Their messages are taken after it.
func TestStagesOutageLines(t *testing.T) {
	t.Parallel()
	d := newDesk(newCluster(t))
	dialer, log := &faulty{}, &testkit.Log{}
	waiting := d.stagesWith(SubscriberConfig{Sarama: dialer.into, Shared: observe.Shared{Logger: log}})
	pub := d.publisher(PublisherConfig{})
	d.consume(waiting, d.topic)
	d.send(pub, d.topic, "before")
	d.untilTaken(1)
	for outage := range 2 {
		dialer.set(false, true)
		begins := func() int { return len(linesOf(log, watermill.ErrorLogLevel, "stages_not_joined")) }
		ends := func() int { return len(linesOf(log, watermill.InfoLogLevel, "stages_joined")) }
		d.eventually("the outage has a line", func() bool { return begins() == outage+1 })
		tried := dialer.refusals()
		d.eventually("it is tried again and again", func() bool { return dialer.refusals() > tried+8 })
		dialer.set(false, false)
		d.eventually("its end has a line", func() bool { return ends() == outage+1 })
		testkit.Equal(t, "lines of outages", begins(), outage+1)
	}
	d.send(pub, d.topic, "after")
	d.untilTaken(2)
	end := linesOf(log, watermill.InfoLogLevel, "stages_joined")[0]
	testkit.Check(t, end.Fields["group"] == d.group && end.Fields["lasted"] != nil, "the end says %v", end)
}

// Feature O5: a rebalance is an Info line that says how long no message was delivered, of a subscriber and of stages.
func TestRebalanceLines(t *testing.T) {
	t.Parallel()
	d := newDesk(newCluster(t))
	live, staged := &testkit.Log{}, &testkit.Log{}
	d.subscribe(d.subscriber(SubscriberConfig{Shared: observe.Shared{Logger: live}}))
	d.create(d.topic+".retry.1s", 2, nil)
	d.consume(d.stagesWith(SubscriberConfig{Shared: observe.Shared{Logger: staged}}), d.topic+".retry.1s")
	d.eventually("both are members", func() bool { return d.members() == 1 && d.members(d.group) == 1 })
	again := func(log *testkit.Log) []testkit.Line { return linesOf(log, watermill.InfoLogLevel, "session_again") }
	testkit.Check(t, len(again(live)) == 0 && len(again(staged)) == 0, "the start has a line")
	d.subscribe(d.subscriber(SubscriberConfig{}))
	d.consume(d.stages(), d.topic+".retry.1s")
	for group, log := range map[string]*testkit.Log{d.cluster.group: live, d.group: staged} {
		d.eventually("the rebalance has a line", func() bool { return len(again(log)) > 0 })
		fields := again(log)[0].Fields
		testkit.Check(t, fields[logging.ConsumerGroup] == group && fields["lasted"] != nil, "%s: %v", group, fields)
	}
}

// Promise P4: stages in the group of a live subscriber, begun before it or after it, wait for no one.
func TestStagesInGroupOfSubscriber(t *testing.T) {
	t.Parallel()
	for _, stagesFirst := range []bool{true, false} {
		d := newDesk(newCluster(t))
		d.group = d.cluster.group
		stage := d.topic + ".stage"
		d.create(stage, 2, nil)
		waiting := d.stages()
		if stagesFirst {
			d.consume(waiting, stage)
		}
		messages := d.subscribe(d.subscriber(SubscriberConfig{}))
		if !stagesFirst {
			d.consume(waiting, stage)
		}
		pub := d.publisher(PublisherConfig{})
		d.send(pub, d.topic, "live")
		d.send(pub, stage, "staged")
		d.next(messages).Ack()
		d.untilTaken(1)
	}
}
