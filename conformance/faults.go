package conformance

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/middleware/crashlimit/sqlmarks"
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

// Promises P1, P7: a consumer is killed with SIGKILL between receipt and ack. The next one finishes what it had begun.
// If the subscriber goes on while a letter is placed, those behind it are acked and placed before the kill.
func (b *bench) killedAtEachStep() {
	variants := map[string]func(*bench){}
	for _, step := range []string{stepReceived, stepHandling, stepWritten, stepCommitted, stepOutput} {
		variants[step] = func(b *bench) { b.killedAt(step, "good-2") }
	}
	for _, step := range []string{stepLetter, stepPlaced} {
		variants[step] = func(b *bench) { b.killedAt(step, "bad-2") }
	}
	b.together(variants)
}

// commitTime is longer than a client keeps an ack to itself, on Kafka up to two seconds: one that came too early has
// reached the broker by then.
const commitTime = 3 * time.Second

// acrossRestart is longer than a restart takes on a machine that is not busy. On a busy one the messages are due
// meanwhile.
const acrossRestart = 10 * time.Second

func (b *bench) killedAt(step, id string) {
	b.begin()
	p := b.consumer(func(s *setting) { s.Halt = map[string]string{id: step} })
	ids := []string{"good-1", id, "good-3", "bad-4", "good-5"}
	b.send(ids...)
	p.until("at", step, id)
	if b.target.Resumed > 0 && strings.HasPrefix(id, badPrefix) {
		p.until("acked", "good-3")
		p.until("acked", "bad-4")
		p.until("acked", "good-5")
	}
	time.Sleep(commitTime)
	p.kill()
	b.consumer()
	b.finish(ids...)
}

// Promises P1, P3, P7: the broker is restarted while a message is handled and not acked, and others wait. If the
// subscriber goes on while letters are placed, hundreds of them are open. If all stages have one consumer, messages
// wait in it.
func (b *bench) brokerRestarted() {
	b.need("Restart", b.target.Restart != nil)
	b.begin()
	open := idsOf(badPrefix, min(b.target.Resumed, 500))
	halt := map[string]string{"good-2": stepCommitted}
	for _, id := range open {
		halt[id] = stepLetter
	}
	var wait []string
	if b.target.Stages != nil {
		wait = numbered(flakyPrefix, 5)
		b.removeStages(0, acrossRestart)
	}
	p := b.consumer(func(s *setting) {
		if s.Halt = halt; wait != nil {
			s.Stages = []time.Duration{acrossRestart}
		}
	})
	b.send(append(append(wait, open...), "good-1", "good-2", "bad-3", "good-4")...)
	p.until("at", stepCommitted, "good-2")
	b.until("those that fail wait", func() bool { return p.events.all("waits in stage") >= len(wait) })
	b.until("all letters are open", func() bool { return p.events.all("at") == len(halt) })
	b.target.Restart(b.T)
	p.proceed()
	b.sendAgain("good-5")
	b.sendAgain("bad-6")
	b.until("those that waited are acked out of the stage", func() bool {
		return !slices.ContainsFunc(wait, func(id string) bool { return p.events.count("acked", id) < 2 })
	})
	b.finish(append(append(wait, open...), "good-1", "good-2", "bad-3", "good-4", "good-5", "bad-6")...)
}

const (
	// bystanders are the messages around those that end the process.
	bystanders = 1000
	// neighbours are the messages that end it. They come one right after the other.
	neighbours = 3
	// maxDeaths is how often they may end it: each as often as the limit says by default, and the first of all once
	// more, since none is counted before there was one.
	maxDeaths = neighbours*3 + 1
	// dying is how long such a handler takes, as one does that fills the memory. No verdict depends on it.
	dying = 300 * time.Millisecond
)

// Feature D10, promise P4: messages that end the process are set aside after a bounded number of deaths, also if one
// ends it right after the one before it was set aside. No other message is, whether it came before, after, or was in
// flight.
func (b *bench) deadly() {
	b.begin()
	var ids, deadly []string
	for i := range bystanders {
		if ids = append(ids, fmt.Sprintf("good-%d", i)); i == bystanders/2 {
			for n := range neighbours {
				deadly = append(deadly, fmt.Sprintf("%s-%d", deadlyPrefix, n))
			}
			ids = append(ids, deadly...)
		}
	}
	b.send(ids...)
	deaths := 0
	for b.supervised(deadly) {
		if deaths++; deaths > maxDeaths {
			b.Fatalf("the process ended %d times, and messages that end it are not set aside", deaths)
		}
	}
	if deaths < 2 {
		b.Errorf("the process ended %d times: no message was deadly", deaths)
	}
	b.Logf("%d deaths", deaths)
	// What it had acked when it ended, a process may not have told.
	b.until("the bystanders took effect", func() bool { return len(b.effects()) == bystanders })
	b.wrapUp(ids...) // which looks at the reason too, and fails for any other dead letter
}

// supervised runs a process until it ends, or until each of the deadly messages was set aside and all others were
// acked.
func (b *bench) supervised(deadly []string) (died bool) {
	p := b.launch(func(s *setting) { s.Limit = true })
	for deadline := time.Now().Add(2 * patience); ; time.Sleep(20 * time.Millisecond) {
		select {
		case <-p.ended:
			p.killed = true
			return true
		default:
		}
		if b.everyPlaced(deadly) && len(b.effects()) == bystanders {
			return false
		}
		if time.Now().After(deadline) {
			b.Fatalf("neither did the process end nor were the messages set aside within %s", 2*patience)
		}
	}
}

// deliveries is the store that counts them.
func (b *bench) deliveries() crashlimit.Store {
	store, err := sqlmarks.NewStore(context.Background(), b.db, b.group)
	if err != nil {
		b.Fatal(err)
	}
	return store
}

// receives notes a message that ends the process.
func (c *consumer) receives(msg *message.Message) {
	if !strings.HasPrefix(msg.UUID, deadlyPrefix) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deadly == nil {
		c.deadly = make(map[string]*message.Message)
	}
	c.deadly[msg.UUID] = msg
}

// refuses notes that such a message was refused.
func (c *consumer) refuses(_ context.Context, exceeded crashlimit.Unfinished) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setAside = append(c.setAside, c.deadly[exceeded.Key])
}

// die ends the process at the worst of times: soon after the messages that were refused are acked, so that the broker
// may not know yet.
func (c *consumer) die(id string) {
	c.mu.Lock()
	refused := c.setAside
	c.mu.Unlock()
	for _, msg := range refused {
		select {
		case <-msg.Acked():
		case <-msg.Nacked():
		}
	}
	time.Sleep(dying)
	c.tell("dies", id)
	os.Exit(3)
}
