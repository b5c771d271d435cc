package conformance

import (
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
)

// confirms is sentence K1: what Publish confirmed is there, even if its publisher is closed at once and others publish
// beside it.
func (b *bench) confirms() {
	b.variantOn(newBareBench, "many at once", func(b *bench) {
		b.bare()
		in := b.open(b.group)
		const publishers, each = 4, 25
		var sending sync.WaitGroup
		var all []string
		for p := range publishers {
			ids := idsOf(string(rune('a'+p)), each)
			all = append(all, ids...)
			pub := b.target.Publisher(b.T)
			sending.Go(func() {
				for _, id := range ids {
					if err := pub.Publish(b.topic, newMessage(id)); err != nil {
						b.Errorf("publish: %v", err)
					}
				}
				if err := pub.Close(); err != nil {
					b.Errorf("close the publisher: %v", err)
				}
			})
		}
		b.inTime("100 messages are published, and none is acked yet", sending.Wait)
		in.ackAll(all)
		sending.Wait()
	})
	b.variantOn(newBareBench, "beside a busy consumer", func(b *bench) {
		b.bare()
		in := b.open(b.group)
		b.ids("held")
		held := in.must("the first message")
		b.inTime("Publish returns while a message is held", func() { b.ids("next") })
		held.Nack()
		b.inTime("Publish returns while a message comes again", func() { b.ids("last") })
		in.ackAll([]string{"held", "next", "last"})
	})
	if b.target.BadTopic != "" {
		b.variantOn(newBareBench, "a topic that cannot be", func(b *bench) {
			if err := b.publisher().Publish(b.target.BadTopic, newMessage("lost")); err == nil {
				b.Errorf("Publish to %q returned nil", b.target.BadTopic)
			}
		})
	}
}

// keepsAll is sentence K12: what nothing consumes yet is kept, all of it.
func (b *bench) keepsAll() {
	const n = 300
	b.bare()
	ids := idsOf("kept", n)
	for part := range slices.Chunk(ids, 50) {
		var messages []*message.Message
		for _, id := range part {
			messages = append(messages, newMessage(id))
		}
		b.publish(messages...)
	}
	time.Sleep(quiet) // for what expires or is trimmed
	b.Log("300 messages were published before anything subscribed to their topic, as dead letters are")
	b.open(b.group).ackAll(ids)
}

// inOrder is sentence K6.
func (b *bench) inOrder() {
	b.bare()
	in := b.open(b.group)
	ids := idsOf("ordered", 30)
	b.ids(ids...)
	var came []string
	for len(came) < len(ids) { // some may come twice
		msg := in.must("messages in order")
		if !slices.Contains(came, msg.UUID) {
			came = append(came, msg.UUID)
		}
		msg.Ack()
	}
	if !slices.Equal(came, ids) {
		b.Errorf("came as %q", came)
	}
}

// publishedTwice is sentence K7: by one publisher, by two, and after the first is acked.
func (b *bench) publishedTwice() {
	b.bare()
	in := b.open(b.group)
	payloads := map[string]bool{}
	send := func(pub message.Publisher, payload string) {
		b.Helper()
		if err := pub.Publish(b.topic, message.NewMessage("same", []byte(payload))); err != nil {
			b.Fatal(err)
		}
	}
	send(b.live, "one")
	send(b.live, "two")
	send(b.publisher(), "three")
	for range 10 {
		if len(payloads) == 3 {
			break
		}
		msg := in.must("a message with an id that came before, by one publisher and by two")
		payloads[string(msg.Payload)] = true
		msg.Ack()
	}
	send(b.live, "four")
	for !payloads["four"] {
		msg := in.must("a message with the id of one that is acked, as a redrive sends it")
		payloads[string(msg.Payload)] = true
		msg.Ack()
	}
}

// sizes is sentence K8.
func (b *bench) sizes() {
	b.bare()
	b.subscribed()
	most := b.target.MaxMessage
	if most == 0 {
		most = 2 << 20
		b.inTime("2 MiB are published", func() { b.publish(message.NewMessage("large", make([]byte, most))) })
	} else {
		err := b.live.Publish(b.topic, message.NewMessage("large", make([]byte, most+64<<10)))
		if err == nil || !(*classify.Classifier)(nil).IsTooLarge(err) {
			b.Errorf("a message larger than Target.MaxMessage (%d): Publish returned %v, which is no refusal for size", most,
				err)
		}
		b.publish(message.NewMessage("large", make([]byte, most/2)))
	}
	b.ids("small")
	b.open(b.group).ackAll([]string{"large", "small"})
}
