package conformance

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// redeliversAfter is the redelivery time of row R5b: longer than a busy machine stands still.
const redeliversAfter = 6 * time.Second

// Feature R5b: a message that is held for longer than the broker's redelivery time, in a stage or in an outage, becomes
// one letter.
func (b *bench) heldTooLong() {
	if b.target.Redelivers == nil {
		return // the broker redelivers at the end of a session alone
	}
	b.together(map[string]func(*bench){
		"in stages": func(b *bench) { b.multipliesNone(b.redelivering, b.inStages) },
		"in stages, time not known": func(b *bench) {
			b.multipliesNone(func(group string) message.Subscriber { return muted(b.redelivering(group)) }, b.inStages)
		},
		"in an outage": func(b *bench) { b.multipliesNone(b.redelivering, b.inOutage) },
		"in an outage, time not known": func(b *bench) {
			b.multipliesNone(func(group string) message.Subscriber { return muted(b.redelivering(group)) }, b.inOutage)
		},
	})
}

func (b *bench) redelivering(group string) message.Subscriber {
	return b.target.Redelivers(b.T, group, redeliversAfter)
}

// mute is a subscriber that does not say its redelivery time, and hides what it is.
type mute struct {
	subscribe func(context.Context, string) (<-chan *message.Message, error)
	end       func() error
}

func muted(sub message.Subscriber) message.Subscriber { return mute{sub.Subscribe, sub.Close} }

func (m mute) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	return m.subscribe(ctx, topic)
}

func (m mute) Close() error { return m.end() }

// multipliesNone runs messages that fail for good, and counts their calls and letters.
func (b *bench) multipliesNone(sub func(group string) message.Subscriber,
	how func(func(string) message.Subscriber) (*spillway.Channel, func() error)) {
	b.create(b.topic, b.outs)
	b.dead, b.live = b.publisher(), b.publisher()
	ch, fails := how(sub)
	var mu sync.Mutex
	inside := map[string]bool{}
	handle := func(msg *message.Message) ([]*message.Message, error) {
		mu.Lock()
		if inside[msg.UUID] {
			b.Errorf("%q is handled twice at a time", msg.UUID)
		}
		inside[msg.UUID] = true
		mu.Unlock()
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			inside[msg.UUID] = false
		}()
		return nil, fails()
	}
	router := b.router()
	ch.Attach(router)
	if ch.Stages() == nil {
		router.AddHandler(handlerName, b.topic, sub(b.group), b.outs, b.target.Publisher(b.T), handle)
	} else if _, err := ch.Stages().AddHandler(router, handlerName, b.topic, sub(b.group), b.outs, b.target.Publisher(b.T),
		handle); err != nil {
		b.Fatal(err)
	}
	stop := b.run(router)
	const messages = 10
	b.ids(numbered("held", messages)...)
	b.untilPlaced(messages)
	time.Sleep(redeliversAfter + time.Second) // what is to come again has come
	stop()
	if n := b.placed.Load(); n != messages {
		b.Errorf("%d letters of %d messages", n, messages)
	}
	letters := map[string]int{}
	for _, l := range b.letters(b.dlq(), messages) {
		letters[l.Original.UUID]++
	}
	if len(letters) != messages {
		b.Errorf("letters of %d messages, want %d: %v", len(letters), messages, letters)
	}
}

// inStages has messages fail in stages of which one is longer than the redelivery time.
func (b *bench) inStages(sub func(string) message.Subscriber) (*spillway.Channel, func() error) {
	return b.channel(b.staged(500*time.Millisecond, 10*time.Second), func(c *spillway.Config) {
		c.Stages.Subscriber = func(_, group string) (message.Subscriber, error) { return sub(group), nil }
	}), func() error { return errNotYet }
}

// inOutage has the breaker hold messages for longer than the redelivery time.
func (b *bench) inOutage(func(string) message.Subscriber) (*spillway.Channel, func() error) {
	back := time.Now().Add(3 * redeliversAfter)
	return b.channel(func(c *spillway.Config) { c.Breaker = &breaker.Config{} }), func() error {
		if time.Now().Before(back) {
			return classify.Away(fmt.Errorf("away until %s", back))
		}
		return classify.Permanent(errNever)
	}
}
