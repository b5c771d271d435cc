package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
)

// What a publisher does with a letter is in its message's id, behind badPrefix.
const (
	lateLetter    = badPrefix + "-late"    // confirms it after a while, behind those that follow
	twiceLetter   = badPrefix + "-twice"   // publishes it, says that it did not, and publishes it again
	refusedLetter = badPrefix + "-refused" // refuses it so often that the message comes again
	largeLetter   = badPrefix + "-large"   // refuses the whole of it for its size
	ownLetter     = badPrefix + "-own"     // of a message that its handler acked
	neverLetter   = badPrefix + "-never"   // does not answer before it is released, and refuses it then
)

// slippery is a publisher of letters that confirms in any order, twice, late, never, or not.
type slippery struct {
	refusing
	release chan struct{}

	mu    sync.Mutex
	tries map[string]int
}

func (b *bench) slippery() *slippery {
	return &slippery{refusing: refusing{Publisher: b.dead}, release: make(chan struct{}), tries: map[string]int{}}
}

func (p *slippery) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		p.mu.Lock()
		p.tries[msg.UUID]++
		try := p.tries[msg.UUID]
		p.mu.Unlock()
		is := func(prefix string) bool { return strings.HasPrefix(msg.UUID, prefix) }
		switch {
		case is(refusedLetter) && try <= 5:
			return errors.New("not now")
		case is(largeLetter) && try <= 2:
			return fmt.Errorf("the broker: %w", classify.ErrTooLarge)
		case is(neverLetter):
			<-p.release
			return errors.New("the publisher is closed")
		}
		if err := p.Publisher.Publish(topic, msg); err != nil {
			return err
		}
		switch {
		case is(lateLetter):
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		case is(twiceLetter) && try == 1:
			return errors.New("the confirm was lost")
		}
	}
	return nil
}

// inTurn fails what is bad, applies what is good, and notes in which order messages first came.
func (b *bench) inTurn(first *[]string, mu *sync.Mutex) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		id := msg.UUID
		mu.Lock()
		if !slices.Contains(*first, id) {
			*first = append(*first, id)
		}
		mu.Unlock()
		if strings.HasPrefix(id, ownLetter) {
			msg.Ack()
		}
		if strings.HasPrefix(id, badPrefix) {
			return nil, classify.Permanent(errNever)
		}
		return nil, b.apply(msg)
	}
}

// Promises P1, P4: whatever the publisher of letters does, each message that failed is a dead letter, and each good one
// took effect, once. If the subscriber goes on while letters are placed, messages first come in their order.
func (b *bench) slipperyPublisher() {
	b.variant("any order", func(b *bench) {
		var ids, first []string
		var mu sync.Mutex
		for i := range 100 {
			kinds := []string{"good", "good", "good", "good", lateLetter, lateLetter, "bad-plain", twiceLetter}
			kind := kinds[i%len(kinds)]
			switch i {
			case 30, 60:
				kind = refusedLetter
			case 10, 99:
				kind = largeLetter
			case 50:
				kind = ownLetter
			}
			ids = append(ids, fmt.Sprintf("%s-%02d", kind, i))
		}
		b.ids(ids...)
		b.start(b.slipping(b.slippery()), b.inTurn(&first, &mu))
		b.wantPlaced(ids)
		mu.Lock()
		defer mu.Unlock()
		if b.target.Resumed > 0 && !slices.Equal(first, ids) {
			b.Errorf("they first came as %q", first)
		}
	})
	if b.target.Resumed == 0 { // the messages behind would wait for good
		return
	}
	b.variant("never, until the subscriber is closed", func(b *bench) {
		var first []string
		var mu sync.Mutex
		ids := []string{"good-0", neverLetter, "good-1", "bad-2", "good-3"}
		pub := b.slippery()
		stop := b.start(b.slipping(pub), b.inTurn(&first, &mu))
		b.ids(ids...)
		b.untilApplied("good-0", "good-1", "good-3")
		b.untilPlaced(1)
		stopped := make(chan struct{})
		go func() { defer close(stopped); stop() }()
		time.Sleep(commitTime) // longer than what is handled may take when a session ends
		close(pub.release)     // too late for another try
		<-stopped
		b.start(b.channel(), b.inTurn(&first, &mu))
		b.wantPlaced(ids)
	})
}

func (b *bench) slipping(pub *slippery) *spillway.Channel {
	return b.channel(func(c *spillway.Config) {
		c.Publisher, c.Queue.PublishBackoff = pub, time.Millisecond
	})
}

// wantPlaced waits until all messages are where they belong: what is good took effect once, what is bad is a dead
// letter, and nothing is left.
func (b *bench) wantPlaced(ids []string) {
	b.Helper()
	good, bad := sortOut(ids)
	b.untilApplied(good...)
	letters := b.gather("account", b.dlq(), patience, func(letters []*message.Message) bool {
		return hasAll(letters, bad)
	})
	for _, id := range bad {
		if !has(letters, id) {
			b.Errorf("%q is no dead letter", id)
		}
	}
	for _, letter := range letters {
		if !strings.HasPrefix(letter.UUID, badPrefix) {
			b.Errorf("%q is a dead letter, and can succeed", letter.UUID)
		}
	}
	b.wantOnce(good...)
	b.untilNothingLeft()
}

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
