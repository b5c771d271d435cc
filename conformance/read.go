package conformance

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/poison"
)

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
