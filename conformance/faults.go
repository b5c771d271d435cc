package conformance

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// begin makes the topics of a fault's bench. What the processes make beside is removed with them.
func (b *bench) begin() {
	b.Helper()
	b.create(b.topic, b.outs)
	b.Cleanup(func() {
		if b.target.DeleteTopic != nil {
			b.target.DeleteTopic(b.T, b.dlq())
			b.target.DeleteTopic(b.T, b.invalid())
		}
	})
}

// shared is the bench with a live topic for two instances at a time.
func (b *bench) shared() *bench {
	if b.target.CreateShared != nil {
		create := b.target.CreateTopic
		if create == nil {
			create = func(testing.TB, string) {}
		}
		b.target.CreateTopic = func(t testing.TB, topic string) {
			if topic == b.topic {
				b.target.CreateShared(t, topic)
				return
			}
			create(t, topic)
		}
	}
	return b
}

// need ends a row that the target lacks something for.
func (b *bench) need(field string, given bool) {
	b.Helper()
	if !given {
		b.Fatalf("Target.%s is missing: give it, or pin the feature with the reason", field)
	}
}

// together runs each variant on a bench of its own, all at the same time: they mostly wait.
func (b *bench) together(variants map[string]func(*bench)) {
	b.Helper()
	var all sync.WaitGroup
	for name, run := range variants {
		all.Go(func() {
			b.variantOn(newBareBench, name, run)
		})
	}
	all.Wait()
}

// send publishes a message for each id, with a publisher that is gone before a fault.
func (b *bench) send(ids ...string) {
	b.Helper()
	b.live = b.target.Publisher(b.T)
	defer func() {
		if err := b.live.Close(); err != nil {
			b.Error(err)
		}
	}()
	b.ids(ids...)
}

// sendAgain is send to a broker that answers, but may not take everything yet.
func (b *bench) sendAgain(id string) {
	b.Helper()
	b.until("the broker takes a message", func() bool {
		pub := b.target.Publisher(b.T)
		refused := pub.Publish(b.topic, newMessage(id))
		if err := pub.Close(); err != nil {
			b.Error(err)
		}
		return refused == nil
	})
}

// trickle sends messages until one has come to the process, and returns their ids. What could hold them up, a handler
// or a wait, does not end before that.
func (b *bench) trickle(to *process) (ids []string) {
	b.Helper()
	for begun := time.Now(); to.events.all("received") == 0; time.Sleep(100 * time.Millisecond) {
		if time.Since(begun) > patience {
			b.Fatalf("nothing came to the other instance within %s", patience)
		}
		ids = append(ids, fmt.Sprintf("good-%d", len(ids)))
		b.send(ids[len(ids)-1])
	}
	return ids
}

// finish waits until all messages are acked and no handler is busy, ends the processes, and draws up the account.
func (b *bench) finish(ids ...string) {
	b.Helper()
	b.until(fmt.Sprintf("%q are settled", ids), func() bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return !b.acked(id) })
	})
	b.wrapUp(ids...)
}

// wrapUp is what remains of finish when the messages are settled.
func (b *bench) wrapUp(ids ...string) {
	b.Helper()
	b.untilNothingLeft()
	b.until("the processes are idle", func() bool {
		return !slices.ContainsFunc(b.processes, func(p *process) bool { return !p.idle() })
	})
	for _, p := range b.processes {
		p.stop()
	}
	b.account(ids...)
}

// acked reports whether a process has acked the message.
func (b *bench) acked(id string) bool {
	return slices.ContainsFunc(b.processes, func(p *process) bool { return p.said("acked", id) })
}

// everyPlaced reports whether processes have set each of the messages aside, which may be more than once.
func (b *bench) everyPlaced(ids []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool {
		return !slices.ContainsFunc(b.processes, func(p *process) bool { return p.said("placed", id) })
	})
}

// wantNoLetters checks that nothing was set aside.
func (b *bench) wantNoLetters() {
	b.Helper()
	for _, p := range b.processes {
		if n := p.events.all("placed"); n > 0 {
			b.Errorf("%d letters, and nothing had failed", n)
		}
	}
}
