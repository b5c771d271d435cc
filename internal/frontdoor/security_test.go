package frontdoor_test

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/shop"
	"github.com/watermill-spillway/spillway/middleware/breaker"
)

// Statements of docs/security.md that no other test holds.

// A publisher to a live topic that takes another message's id is applied in its place; the other is not lost, but
// dead-lettered as invalid.
func TestSecurityTakenID(t *testing.T) {
	b := newBench(t, false)
	stop := b.Run(b.Channel().Attach, func(msg *message.Message) ([]*message.Message, error) { return nil, b.Apply(msg) })
	defer stop()
	b.Publish(message.NewMessage("order-1", []byte("forged")))
	b.Eventually("the forged one is applied", func() bool { return len(b.Effects()) == 1 })
	b.Publish(message.NewMessage("order-1", []byte("genuine")))
	b.Eventually("the genuine one is dead-lettered", func() bool { return len(b.Waiting()) == 1 })
	letter := b.Waiting()[0].Letter
	testkit.Check(t, letter.Failure.Reason == classify.ReasonKeyReused && string(letter.Original.Payload) == "genuine",
		"%s: %s", letter.Failure.Reason, letter.Original.Payload)
}

// A person who sends messages that fail as if the downstream was away cannot stop the good ones among them, and the own
// ones end.
func TestSecurityPretendedOutage(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	b := newBench(t, false)
	ch := b.Channel(func(c *spillway.Config) {
		c.Breaker = &breaker.Config{Probe: time.Millisecond, MaxProbe: 10 * time.Millisecond, Doubt: 100 * time.Millisecond}
	})
	stop := b.Run(ch.Attach, func(msg *message.Message) ([]*message.Message, error) {
		if msg.Metadata.Get("callback") != "" {
			return nil, fmt.Errorf("call back: %w", syscall.ECONNREFUSED)
		}
		return nil, b.Apply(msg)
	})
	defer stop()
	messages := shop.Numbered(100)
	for i := range 10 {
		messages[i].Metadata.Set("callback", "nowhere.example")
	}
	random.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
	for _, msg := range messages {
		b.Publish(msg)
	}
	b.Eventually("the good ones are handled", func() bool { return len(b.Effects()) == 90 })
	for i := 0; len(b.Waiting()) < 10; i++ { // as long as there is traffic, each of the others ends
		b.Publish(message.NewMessage(fmt.Sprintf("good-%d", i), nil))
		b.Eventually("the next is handled", func() bool { return len(b.Effects()) == 91+i })
	}
}
