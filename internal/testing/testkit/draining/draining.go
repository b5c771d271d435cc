// Package draining has the test of drains and dry runs over a dead-letter topic that each adapter passes.
package draining

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Subscriber is what an adapter's subscriber can do.
type Subscriber interface {
	message.Subscriber
	Browse(ctx context.Context, topic string, each func(*message.Message) (more bool)) error
	Backlog(ctx context.Context, topic string) (int, error)
}

// Broker is a broker under test.
type Broker struct {
	// Topic is a topic of the test's own. It and Topic+".dlq" exist and are empty.
	Topic     string
	Publisher message.Publisher
	// Subscriber opens one more subscriber of one consumer group.
	Subscriber func() Subscriber
	// InDoubt is how many letters may be published twice if a drain is cut off: those in flight, and those that the
	// broker does not have the acks of yet.
	InDoubt int
}

const each = 10 // letters of a handler

// Test drains a topic in four parts: a dry run, one that is cut off after a publish, one that ends at its Max, and the
// rest.
func Test(t *testing.T, b Broker) {
	dead := b.Topic + ".dlq"
	var waiting []*message.Message
	for i := range 2 * each {
		waiting = append(waiting, b.letter(fmt.Sprint("letter-", i), b.Topic, []string{"billing", "mail"}[i%2]))
	}
	waiting = append(waiting, b.letter("forged", "admin", "billing"), message.NewMessage("plain", []byte("no letter")))
	for _, msg := range waiting {
		if err := b.Publisher.Publish(dead, msg); err != nil {
			t.Fatal(err)
		}
	}
	live := &counted{Publisher: b.Publisher, topic: b.Topic, ids: make(map[string]int)}
	config := redrive.DrainTopicConfig{
		Rules: redrive.Rules{Allow: []string{b.Topic}, Filter: letters.Filter{Handlers: []string{"billing", "mail"}},
			By: "test", Rate: 1000},
		Topic: dead, Park: b.Publisher, IdleAfter: testkit.Patience, FromBeginning: true,
	}

	// The dry run, twice: it takes nothing.
	for range 2 {
		b.plan(t, config, inside.TopicPlan{Messages: len(waiting), Letters: 2 * each, Refused: 1, NoLetters: 1})
	}
	some := config
	some.Filter.Handlers = []string{"mail"}
	b.plan(t, some, inside.TopicPlan{Messages: len(waiting), Letters: each, NotChosen: each + 1, NoLetters: 1})
	some.Max = 3
	b.plan(t, some, inside.TopicPlan{Messages: 3, Letters: 1, NotChosen: 2})

	// A drain whose subscription is cut off between a publish and its ack.
	sub := b.Subscriber()
	live.cut = func(n int) {
		if n == 5 {
			if err := sub.Close(); err != nil {
				t.Log(err)
			}
		}
	}
	if report, err := redrive.DrainTopic(t.Context(), sub, live, config); err == nil {
		t.Errorf("a drain that was cut off has no error: %+v", report)
	}
	live.cut = nil
	least := len(waiting) - len(live.ids) // are left; what is in doubt may come back at any time
	b.settled(t, dead, func(n int) bool { return n >= least && n <= least+b.InDoubt })

	// What is left, in two parts.
	config.Max = 4
	b.drain(t, live, config, 4, 4)
	b.settled(t, dead, func(n int) bool { return n >= least-4 && n <= least+b.InDoubt-4 })
	config.Max = 0
	b.drain(t, live, config, least-4, least+b.InDoubt-4)
	b.settled(t, dead, func(n int) bool {
		if n > 0 { // what was in doubt came back behind the last drain
			b.drain(t, live, config, 0, b.InDoubt)
		}
		return n == 0
	})
	b.plan(t, config, inside.TopicPlan{})

	twice := 0
	for _, msg := range waiting[:2*each] {
		n := live.ids[msg.UUID]
		if n == 0 {
			t.Errorf("%s is lost", msg.UUID)
		}
		twice += max(0, n-1)
	}
	if twice > b.InDoubt || len(live.ids) != 2*each {
		t.Errorf("%d letters were published, %d twice, want %d and at most %d", len(live.ids), twice, 2*each, b.InDoubt)
	}
}

func (b *Broker) letter(id, origin, handler string) *message.Message {
	l := poison.Letter{Original: message.NewMessage(id, []byte("payload of "+id)),
		Origin: poison.Origin{Topic: origin, Handler: handler, MessageID: id}}
	l.Failure.Reason, l.Failure.Description, l.Failure.LastFailedAt = "no_such_customer", "customer is unknown", time.Now()
	return l.Encode()
}

// plan fails the test if a dry run counts anything else.
func (b *Broker) plan(t *testing.T, config redrive.DrainTopicConfig, want inside.TopicPlan) {
	t.Helper()
	sub := b.Subscriber()
	defer func() { _ = sub.Close() }()
	plan, err := hidden.Of((*redrive.Handler)(nil)).PlanTopic(t.Context(), sub, config)
	if err != nil || plan.Messages != want.Messages || plan.Letters != want.Letters || plan.Refused != want.Refused ||
		plan.NotChosen != want.NotChosen || plan.NoLetters != want.NoLetters ||
		len(plan.Sample) != min(want.Letters, 10) {
		t.Fatalf("planned %+v, %v, want %+v", plan, err, want)
	}
	b.settled(t, config.Topic, func(n int) bool { return n >= plan.Messages }) // RabbitMQ puts them back a moment later
}

func (b *Broker) drain(t *testing.T, live *counted, config redrive.DrainTopicConfig, least, most int) {
	t.Helper()
	sub := b.Subscriber()
	defer func() { _ = sub.Close() }()
	config.Backlog = sub.Backlog
	if report, err := redrive.DrainTopic(t.Context(), sub, live, config); err != nil || report.Taken < least ||
		report.Taken > most {
		t.Fatalf("%+v, %v, want %d to %d taken", report, err, least, most)
	}
}

// settled waits until so many messages are not acked.
func (b *Broker) settled(t *testing.T, topic string, is func(int) bool) {
	t.Helper()
	sub := b.Subscriber()
	defer func() { _ = sub.Close() }()
	var n int
	testkit.Eventually(t, "the acks are with the broker", func() bool {
		var err error
		n, err = sub.Backlog(t.Context(), topic)
		return err == nil && is(n)
	}, func() string { return fmt.Sprint(n, " messages wait") })
}

// counted counts what was published to the live topic, by id.
type counted struct {
	message.Publisher
	topic string
	mu    sync.Mutex
	ids   map[string]int
	cut   func(published int)
}

func (c *counted) Publish(topic string, messages ...*message.Message) error {
	if err := c.Publisher.Publish(topic, messages...); err != nil {
		return err
	}
	if topic != c.topic {
		return fmt.Errorf("published to %q", topic)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, msg := range messages {
		c.ids[msg.UUID]++
	}
	if c.cut != nil {
		c.cut(len(c.ids))
	}
	return nil
}
