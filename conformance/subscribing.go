package conformance

import (
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// redelivers is sentence K2: after nacks, and after the subscriber was closed.
func (b *bench) redelivers() {
	b.bare()
	in := b.open(b.group)
	b.ids("again")
	for range 3 {
		msg := in.must("a message that was nacked comes again")
		b.wantSame("delivered", msg, newMessage("again"))
		msg.Nack()
	}
	in.must("a message that was nacked comes again") // and is held
	in.close()
	msg := b.open(b.group).must("a message that was held when its subscriber was closed")
	b.wantSame("delivered after Close", msg, newMessage("again"))
	msg.Ack()
}

// acksOnlyOnAck is sentence K4: by id, over three closes, contexts that end and nacks.
func (b *bench) acksOnlyOnAck() {
	cases := map[string]func(*bench){}
	for name, leave := range map[string]func(in *tap, held *message.Message){
		"close":               func(in *tap, _ *message.Message) { in.close() },
		"nack and close":      func(in *tap, held *message.Message) { held.Nack(); in.close() },
		"close and nack":      func(in *tap, held *message.Message) { in.close(); held.Nack() },
		"the context is done": func(in *tap, _ *message.Message) { in.cancel(); time.Sleep(quiet); in.close() },
	} {
		cases[name] = func(b *bench) {
			b.bare()
			ids := idsOf("kept", 20)
			b.subscribed()
			b.ids(ids...)
			acked := map[string]bool{}
			for range 3 {
				in := b.open(b.group)
				for range 2 {
					msg := in.must("messages after a Close")
					acked[msg.UUID] = true
					msg.Ack()
				}
				leave(in, in.must("a message to hold"))
			}
			var left []string
			for _, id := range ids {
				if !acked[id] {
					left = append(left, id)
				}
			}
			b.open(b.group).ackAll(left) // or the broker took what was requeued for acked
		}
	}
	b.together(cases)
}

// remembers is sentence K13.
func (b *bench) remembers() {
	b.bare()
	ids := idsOf("acked", 10)
	b.subscribed()
	b.ids(ids...)
	in := b.open(b.group)
	in.ackAll(ids)
	in.close()
	b.ids("new")
	for id := range b.open(b.group).ackAll([]string{"new"}) {
		if id != "new" {
			b.Errorf("%q was acked, and came again after a Close", id)
		}
	}
}

// endsContexts is sentence K11, for a Close. F7 loses the connection.
func (b *bench) endsContexts() {
	b.bare()
	in := b.open(b.group)
	b.ids("held")
	held := in.must("a message to hold")
	if err := held.Context().Err(); err != nil {
		b.Errorf("the context of a message that was just delivered: %v", err)
	}
	ended := make(chan struct{})
	go func() { in.close(); close(ended) }()
	select {
	case <-held.Context().Done():
	case <-time.After(min(b.wait(), 10*time.Second)):
		b.Errorf("the subscriber is closed, and the message's context has not ended")
	}
	held.Nack()
	<-ended
}

// redeliveryTime is what a subscriber says of itself, by name.
type redeliveryTime interface{ RedeliveryTime() time.Duration }

// holdsBack is sentence K3: a message that is held comes to no other consumer of its group, and again when its time is
// over.
func (b *bench) holdsBack() {
	b.variantOn(newBareBench, "before its time", func(b *bench) {
		b.shared().bare()
		in, other := b.open(b.group), b.open(b.group)
		hold := 3 * time.Second
		if sub, ok := in.sub.(redeliveryTime); ok && sub.RedeliveryTime() > 0 {
			hold = min(hold, sub.RedeliveryTime()/2)
		}
		for try := 1; ; try++ { // a member that joins late takes the partition over, and the message comes again with it
			id := fmt.Sprint("held-", try)
			b.ids(id)
			held := b.either(in, other, b.wait())
			for held != nil && held.UUID != id {
				held.Ack()
				held = b.either(in, other, b.wait())
			}
			if held == nil {
				b.Fatal("no message came")
			}
			again := b.either(in, other, hold)
			held.Ack()
			if again == nil {
				return
			}
			again.Ack()
			b.Logf("%q is held, and was delivered again within %s", id, hold)
			if try == 3 {
				b.Errorf("each of %d messages was delivered again within %s while it was held", try, hold)
				return
			}
		}
	})
	if b.target.Redelivers == nil {
		return
	}
	b.variantOn(newBareBench, "after its time", func(b *bench) {
		const after = 2 * time.Second
		b.shared().bare()
		sub := b.target.Redelivers(b.T, b.group, after)
		// without the method Spillway may know the type
		if says, ok := sub.(redeliveryTime); ok && says.RedeliveryTime() != after {
			b.Errorf("RedeliveryTime returns %s for a subscriber that Target.Redelivers is to give %s", says.RedeliveryTime(),
				after)
		}
		in, other := b.listen(sub, b.topic), b.listen(b.target.Redelivers(b.T, b.group, after), b.topic)
		b.ids("held")
		held := b.either(in, other, b.wait())
		again := b.either(in, other, b.wait())
		if held == nil || again == nil {
			b.Fatalf("a message that was held for %s did not come again", after)
		}
		again.Ack()
		held.Ack()
	})
}

// either returns the message that comes to one of two, or nil.
func (b *bench) either(one, two *tap, within time.Duration) *message.Message {
	b.Helper()
	select {
	case msg := <-one.in:
		return msg
	case msg := <-two.in:
		return msg
	case <-time.After(within):
		return nil
	}
}

// groups is sentence K5.
func (b *bench) groups() {
	const n = 20
	b.variantOn(newBareBench, "one group", func(b *bench) {
		b.shared().bare()
		ids := idsOf("shared", n)
		if came := b.both(b.open(b.group), b.open(b.group), ids); came > n+n/2 {
			b.Errorf("two instances of a group got %d messages of %d", came, n)
		}
	})
	b.variantOn(newBareBench, "two groups", func(b *bench) {
		b.bare()
		ids := idsOf("each", n)
		came := b.both(b.open(b.group), b.open(b.group+"-other"), ids)
		switch {
		case !b.target.Competing && came < 2*n:
			b.Errorf("two groups got %d messages, and each was to get %d. If all subscribers compete, say so in "+
				"Target.Competing", came, n)
		case b.target.Competing && came > n+n/2:
			b.Errorf("Target.Competing, and two subscribers got %d messages of %d", came, n)
		}
	})
}

// both publishes the messages, acks them on two taps, and returns how many came. Each id must come to one of them.
func (b *bench) both(one, two *tap, ids []string) (came int) {
	b.Helper()
	b.ids(ids...)
	var mu sync.Mutex
	by := map[string]int{}
	last := time.Now()
	var reading sync.WaitGroup
	for _, in := range []*tap{one, two} {
		reading.Go(func() {
			for {
				msg := in.next(20 * time.Millisecond)
				mu.Lock()
				if msg != nil {
					by[msg.UUID]++
					came++
					last = time.Now()
					msg.Ack()
				}
				done := time.Since(last) > quiet && len(by) == len(ids) && (came >= 2*len(ids) || time.Since(last) > 4*quiet)
				done = done || time.Since(last) > b.wait()
				mu.Unlock()
				if done {
					return
				}
			}
		})
	}
	reading.Wait()
	if len(by) < len(ids) {
		b.Errorf("of %d messages %d came to neither", len(ids), len(ids)-len(by))
	}
	return came
}

// instances is sentence K17.
func (b *bench) instances() {
	b.shared().bare()
	busy := b.open(b.group)
	b.ids("busy")
	held := busy.must("a message to hold")
	in := b.open(b.group)
	for n, begun := 0, time.Now(); ; n++ {
		b.ids(fmt.Sprintf("next-%03d", n))
		if msg := in.next(100 * time.Millisecond); msg != nil {
			msg.Ack()
			break
		}
		if time.Since(begun) > b.wait()/2 {
			b.Errorf("%d messages were published within %s while an instance was busy, and none came to the one that joined",
				n+1, b.wait()/2)
			break
		}
	}
	held.Ack()
}
