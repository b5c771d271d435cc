package wmkafka

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/deadletter"
	"github.com/watermill-spillway/spillway/internal/graceful"
	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

func (c *cluster) channel(config spillway.Config) *spillway.Channel {
	c.Helper()
	config.Queue.Origin = Origin
	ch, err := spillway.New(context.Background(), config)
	testkit.NoError(c, err)
	return ch
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

// Feature D8: what no unmarshaler can read is set aside as invalid, whole, and the partition goes on. It works with any
// unmarshaler, with ours in watermill-kafka's subscriber, and with one that panics.
func TestUnreadableIsSetAside(t *testing.T) {
	t.Parallel()
	for name, format := range map[string]picky{"refuses": {}, "panics": {panics: true}} {
		for who, make := range map[string]func(*cluster) message.Subscriber{
			"ours": func(c *cluster) message.Subscriber { return c.subscriber(SubscriberConfig{Unmarshaler: format}) },
			"ours, ours inside": func(c *cluster) message.Subscriber {
				return c.subscriber(SubscriberConfig{Unmarshaler: Marshaler{Inner: format}})
			},
			"watermill's, ours inside": func(c *cluster) message.Subscriber { return c.stock(stockWith(Marshaler{Inner: format})) },
		} {
			t.Run(name+", "+who, func(t *testing.T) {
				c := newCluster(t)
				records := numbered(3)
				records[1].Value = sarama.ByteEncoder("\x00unreadable\xff")
				records[1].Key = sarama.StringEncoder("key")
				records[1].Headers = append(records[1].Headers, header("tenant", "acme"))
				c.produce(records...)
				dead, handled := &sink{}, &sink{}
				ch := c.channel(spillway.Config{Publisher: dead})
				c.run(make(c), nil, ch.Attach, func(msg *message.Message) ([]*message.Message, error) {
					return nil, handled.Publish("", msg)
				})
				c.eventually("the partition goes on", func() bool { return len(handled.all()) == 2 })
				c.eventually("the letter is placed", func() bool { return len(dead.all()) > 0 })
				letters := dead.letters(t)
				testkit.Require(t, len(letters) == 1, "%d letters", len(letters))
				l := letters[0]
				if l.Failure.Class != classify.ClassInvalid || l.Failure.Reason != classify.ReasonUnmarshal ||
					l.Origin.Offset != "1" || string(l.Origin.Key) != "key" || l.Origin.Topic != c.topic {
					t.Errorf("it tells %+v %+v", l.Failure, l.Origin)
				}
				if m := l.Original; m.UUID != "id-1" || string(m.Payload) != "\x00unreadable\xff" || m.Metadata["tenant"] != "acme" {
					t.Errorf("it holds %q %v %q", m.UUID, m.Metadata, m.Payload)
				}
			})
		}
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

// Sentence K11: handlers do not go on for the time of a drain if the group may have given the partition away. A member
// that it does not know, and one that gets no answer, are such.
func TestTenureEndsWithMembership(t *testing.T) {
	const drain = time.Minute
	for name, brokers := range map[string][]string{
		"unknown member": services.Kafka(t),
		"no answer":      {"127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sub, err := NewSubscriber(brokers, "g", SubscriberConfig{})
			testkit.NoError(t, err)
			s, g := newSubscription(sub, "orders", func() {}), newGroup(t, 0)
			g.ctx, g.end = context.WithCancel(graceful.With(t.Context(), drain))
			s.begin(stranger{g})
			work := s.tenure.work
			g.end()
			began := time.Now()
			select {
			case <-work.Done():
			case <-time.After(drain / 2):
				t.Fatal("the handlers go on")
			}
			if took := time.Since(began); took < soon {
				t.Errorf("the contexts ended after %s, before anybody was asked", took)
			}
		})
	}
}
