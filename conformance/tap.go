package conformance

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
)

// tap is a subscription that a row reads by itself, without a router. The rows K1 to K20 hold the bare pub/sub to its
// contract.
type tap struct {
	b      *bench
	sub    message.Subscriber
	in     <-chan *message.Message
	cancel context.CancelFunc
	closed bool
}

// open subscribes the group to the live topic.
func (b *bench) open(group string) *tap {
	b.Helper()
	return b.openTopic(group, b.topic)
}

func (b *bench) openTopic(group, topic string) *tap {
	b.Helper()
	return b.listen(b.target.Subscriber(b.T, group), topic)
}

func (b *bench) listen(sub message.Subscriber, topic string) *tap {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t := &tap{b: b, sub: sub, cancel: cancel}
	b.Cleanup(t.close)
	var err error
	if t.in, err = sub.Subscribe(ctx, topic); err != nil {
		b.Fatalf("subscribe to %q: %v", topic, err)
	}
	return t
}

// close closes the subscriber, even if it waits for a message that is held. It requeues what comes meanwhile.
func (t *tap) close() {
	if t.closed {
		return
	}
	t.closed = true
	done := make(chan error, 1)
	go func() { done <- t.sub.Close() }()
	for late := time.After(patience); ; {
		select {
		case msg, ok := <-t.in:
			if ok {
				msg.Nack()
			} else {
				t.in = nil
			}
		case err := <-done:
			if err != nil {
				t.b.Errorf("close the subscriber: %v", err)
			}
			t.cancel()
			return
		case <-late:
			t.b.Errorf("the subscriber does not close within %s", patience)
			t.cancel()
			return
		}
	}
}

// wait is how long a row of the contract waits for a message that must come.
func (b *bench) wait() time.Duration {
	if b.target.wait > 0 {
		return b.target.wait
	}
	return patience
}

// next returns the next message, or nil if none comes within the time.
func (t *tap) next(within time.Duration) *message.Message {
	t.b.Helper()
	select {
	case msg, ok := <-t.in:
		if !ok {
			t.b.Fatal("the subscription ended by itself")
		}
		return msg
	case <-time.After(within):
		return nil
	}
}

// must returns the next message.
func (t *tap) must(what string) *message.Message {
	t.b.Helper()
	msg := t.next(t.b.wait())
	if msg == nil {
		t.b.Fatalf("no message within %s: %s", t.b.wait(), what)
	}
	return msg
}

// ackAll acks what comes until all ids have come, and returns how often each did. It waits a little for more.
func (t *tap) ackAll(ids []string) map[string]int {
	t.b.Helper()
	came := map[string]int{}
	missing := func() []string {
		return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return came[id] > 0 })
	}
	for deadline := time.Now().Add(t.b.wait()); ; {
		within := time.Until(deadline)
		if len(missing()) == 0 {
			within = min(within, quiet)
		}
		msg := t.next(max(within, 0))
		if msg == nil {
			break
		}
		came[msg.UUID]++
		msg.Ack()
	}
	if left := missing(); len(left) > 0 {
		t.b.Errorf("%d of %d messages did not come within %s, among them %q", len(left), len(ids), t.b.wait(),
			left[:min(len(left), 10)])
	}
	return came
}

// subscribed has the topic know the group before anything is published, and lets no consumer hold a message meanwhile.
func (b *bench) subscribed() {
	b.Helper()
	b.open(b.group).close()
}

// quiet is how long nothing comes if nothing is to come.
const quiet = 500 * time.Millisecond

// bare is a bench for a row of the contract: with a live topic and a publisher, and no router.
func (b *bench) bare() *bench {
	b.Helper()
	b.create(b.topic)
	b.live = b.publisher()
	return b
}

// within is a bench for a case that goes on with the topic of its row.
func within(row *bench) func(*testing.T, Target) *bench {
	return func(t *testing.T, target Target) *bench {
		return &bench{T: t, target: target, topic: row.topic, outs: row.outs, group: row.group, path: row.path,
			live: row.live}
	}
}

// inTime fails the row if f does not return soon.
func (b *bench) inTime(what string, f func()) {
	b.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(min(b.wait(), 20*time.Second)):
		b.Errorf("not within %s: %s", min(b.wait(), 20*time.Second), what)
	}
}

func idsOf(prefix string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s-%02d", prefix, i))
	}
	return ids
}

// read takes n messages out of a topic, in a consumer group of its own.
func (b *bench) read(topic string, n int) []*message.Message {
	b.Helper()
	return b.readUntil(topic, func(messages []*message.Message) bool { return len(messages) == n })
}

func (b *bench) readUntil(topic string, enough func([]*message.Message) bool) []*message.Message {
	b.Helper()
	sub := b.target.Subscriber(b.T, "read-"+topic)
	defer func() {
		if err := sub.Close(); err != nil {
			b.Error(err)
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	incoming, err := sub.Subscribe(ctx, topic)
	if err != nil {
		b.Fatalf("subscribe to %q: %v", topic, err)
	}
	var messages []*message.Message
	patient := time.NewTimer(patience)
	defer patient.Stop()
	for {
		select {
		case msg, ok := <-incoming:
			if !ok {
				b.Fatalf("the subscription to %q ended after %d messages", topic, len(messages))
			}
			messages = append(messages, msg)
			msg.Ack()
			if enough(messages) {
				return messages
			}
		case <-patient.C:
			b.Fatalf("%q gave no more than %d messages", topic, len(messages))
		}
	}
}

// letters takes n dead letters out of a topic.
func (b *bench) letters(topic string, n int) []poison.Letter {
	b.Helper()
	var letters []poison.Letter
	for _, msg := range b.read(topic, n) {
		l, err := poison.Decode(msg)
		if err != nil {
			b.Fatalf("in %q: %v: metadata %v", topic, err, msg.Metadata)
		}
		letters = append(letters, l)
	}
	return letters
}

// letter takes the one dead letter out of a topic.
func (b *bench) letter(topic string) poison.Letter {
	b.Helper()
	return b.letters(topic, 1)[0]
}

func (b *bench) dlq() string { return b.target.Naming.DeadLetterTopic(naming.Source{Topic: b.topic}) }
func (b *bench) invalid() string {
	return b.target.Naming.DeadLetterTopic(naming.Source{Topic: b.topic, Class: classify.ClassInvalid})
}

// find reads a topic until the message with the id comes.
func (b *bench) find(topic, id string) *message.Message {
	b.Helper()
	messages := b.readUntil(topic, func(messages []*message.Message) bool { return messages[len(messages)-1].UUID == id })
	return messages[len(messages)-1]
}
