package conformance

import (
	"fmt"
	"sync"
	"time"
)

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
