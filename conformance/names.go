package conformance

import (
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain/deadletter"
	"github.com/watermill-spillway/spillway/poison"
)

// names is sentence K10: names that a broker could take for one.
func (b *bench) names() {
	long := strings.Repeat("n", 200)
	for name, pair := range map[string][2]string{
		"dots":     {".a.b", ".a_b"},
		"dashes":   {"-a-b", "-a_b"},
		"capitals": {"-a", "-A"},
		"long":     {"-" + long + "a", "-" + long + "b"},
	} {
		b.variantOn(newBareBench, name, func(b *bench) {
			b.live = b.publisher()
			one, two := b.topic+pair[0], b.topic+pair[1]
			if !b.exists(one) || !b.exists(two) {
				return
			}
			in := map[string]*tap{one: b.openTopic(b.group+"a", one), two: b.openTopic(b.group+"b", two)}
			for topic := range in {
				if err := b.live.Publish(topic, newMessage(topic)); err != nil {
					b.Fatalf("publish to %q, which was made: %v", topic, err)
				}
			}
			for topic, in := range in {
				for id := range in.ackAll([]string{topic}) {
					if id != topic {
						b.Errorf("in %q is a message of %q", topic, id)
					}
				}
			}
		})
	}
}

// exists makes a topic, as the channel would, and reports whether the broker takes the name.
func (b *bench) exists(topic string) bool {
	b.Helper()
	var err error
	switch pub := b.live.(type) {
	case poison.Initializer:
		err = pub.InitializeTopics(topic)
	default:
		b.create(topic)
	}
	if err != nil {
		b.Logf("the broker does not take the name: %v", err)
		return false
	}
	b.remove(topic)
	return true
}

func (b *bench) remove(topic string) {
	if b.target.DeleteTopic != nil {
		b.Cleanup(func() { b.target.DeleteTopic(b.T, topic) })
	}
}

// makesTopics is sentence K16.
func (b *bench) makesTopics() {
	b.live = b.publisher()
	if pub, ok := b.live.(poison.Initializer); ok {
		for range 2 { // the second time it is there
			if err := pub.InitializeTopics(b.topic); err != nil {
				b.Fatalf("InitializeTopics: %v", err)
			}
		}
		if b.target.BadTopic != "" {
			if err := pub.InitializeTopics(b.target.BadTopic); err == nil || !strings.Contains(err.Error(), b.target.BadTopic) {
				b.Errorf("InitializeTopics of Target.BadTopic (%q) returned %v, which does not name the topic", b.target.BadTopic,
					err)
			}
		}
	}
	b.remove(b.topic)
	in := b.open(b.group)
	b.ids("first")
	in.ackAll([]string{"first"})
}

// marksUnreadable is sentence K14.
func (b *bench) marksUnreadable() {
	b.bare()
	in := b.open(b.group)
	b.publish(message.NewMessage("bad", []byte(Unreadable)))
	b.ids("good")
	msg := in.must("a message that cannot be read")
	if msg.UUID == "good" {
		b.Fatal("the message that cannot be read was passed over")
	}
	if deadletter.Marked(msg.Metadata[deadletter.KeyMarked]) == nil {
		b.Error("a message that cannot be read was delivered, and is not marked by poison.MarkUnreadable")
	}
	if string(msg.Payload) != Unreadable {
		b.Errorf("its payload is %.80q", msg.Payload)
	}
	msg.Ack()
	in.ackAll([]string{"good"})
}

// counts is sentence K20.
func (b *bench) counts() {
	b.need("Backlog", b.target.Backlog != nil)
	b.bare()
	backlog := b.target.Backlog(b.T, b.group)
	want := func(n int) {
		b.Helper()
		var got int
		var err error
		for deadline := time.Now().Add(b.wait()); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			if got, err = backlog(b.Context(), b.topic); err == nil && got == n {
				return
			}
		}
		b.Errorf("the backlog is %d instead of %d: %v", got, n, err)
	}
	ids := idsOf("waiting", 3)
	b.ids(ids...)
	want(3)
	in := b.open(b.group)
	in.ackAll(ids)
	in.close()
	want(0)
}
