package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/middleware/stages"
)

// stage gives the consumer's handler stages.
func (c *consumer) stage(config *spillway.Config) {
	c.b.staged(c.Stages...)(config)
	switch c.Store {
	case storeShared:
		config.Stages.Store = c.b.delays()
	case storeOwn:
		config.Stages.Store = c.b.ownDelays()
	}
	config.Stages.Publisher = halting{refusing{config.Stages.Publisher, func(_ string, msg *message.Message) error {
		c.halt(msg.Context(), stepLater, msg.UUID)
		return nil
	}}, func(msg *message.Message) { c.halt(msg.Context(), stepStaged, msg.UUID) }}
	config.Stages.Hooks.OnStage = func(_ context.Context, s stages.Waiting) { c.tell("waits in stage", s.Stage) }
}

// halting is a publisher of stages that stops before and after it has published.
type halting struct {
	refusing
	after func(*message.Message)
}

func (p halting) Publish(topic string, messages ...*message.Message) error {
	if err := p.refusing.Publish(topic, messages...); err != nil {
		return err
	}
	for _, msg := range messages {
		p.after(msg)
	}
	return nil
}

// Promises P1, P7: a consumer, and with a store the relay in it, is killed with SIGKILL again and again: on the way
// into a stage, in it, and out of it.
func (b *bench) killedInStages() {
	variants := map[string]func(*bench){
		"store": func(b *bench) { b.killedInStage(storeShared, stepCommitted, stepLater, stepStaged, stepWritten) },
	}
	if !b.target.Holds {
		variants["topics"] = func(b *bench) { b.killedInStage("", stepLater, stepStaged, stepWritten, stepOutput) }
	}
	b.together(variants)
}

// removeStages removes the topics that a consumer's stages make.
func (b *bench) removeStages(delays ...time.Duration) {
	b.Cleanup(func() {
		for _, delay := range delays {
			if b.target.DeleteTopic != nil {
				b.target.DeleteTopic(b.T, b.stageTopic(delay))
			}
		}
	})
}

func (b *bench) killedInStage(store string, steps ...string) {
	const flaky, good, late = 8, 8, 2 // messages for each step
	const short, long = 300 * time.Millisecond, 600 * time.Millisecond
	b.begin()
	b.removeStages(0, short, long)
	seed := uint64(time.Now().UnixNano())
	order := rand.New(rand.NewPCG(seed, 0))
	b.Logf("the order of messages is drawn with seed %d", seed)
	staged := func(s *setting) {
		s.Stages, s.Store = []time.Duration{short, long}, store
	}
	var all []string
	for _, step := range steps {
		var ids []string
		for prefix, n := range map[string]int{flakyPrefix: flaky, "good": good, latePrefix: late} {
			ids = append(ids, numbered(prefix+"-"+step, n)...)
		}
		order.Shuffle(len(ids), func(i, k int) { ids[i], ids[k] = ids[k], ids[i] })
		b.send(ids...)
		all = append(all, ids...)
		at := numbered(flakyPrefix+"-"+step, flaky)[flaky/2]
		p := b.consumer(staged, func(s *setting) { s.Halt = map[string]string{at: step} })
		p.until("at", step, at)
		if step == stepLater {
			time.Sleep(commitTime) // of an ack that came too early
		}
		p.kill() // while others wait, or are handled
	}
	p := b.consumer(staged)
	can, cannot := sortOut(all)
	b.until("what can succeed has", func() bool { return len(b.effects()) >= len(can) })
	b.until("what cannot is set aside", func() bool { return b.everyPlaced(cannot) })
	b.Logf("after %d kills the last process was told %d times that a message waits", len(steps),
		p.events.all("waits in stage"))
	b.wrapUp(all...)
}

// Feature R5, promise P3: another instance joins while a message waits in a stage. The live topic goes on, before the
// message is due; that is handled when it is, and no attempt is counted for it. A busy machine may take longer for a
// join than the message waits, which says nothing: then another one waits longer.
func (b *bench) joinedWhileStaged() {
	for _, delay := range []time.Duration{15 * time.Second, 45 * time.Second} {
		if newBareBench(b.T, b.target).joinedBeforeDue(delay) {
			return
		}
	}
	b.Error("the live topic stood still until the message that waits was due")
}

func (b *bench) joinedBeforeDue(delay time.Duration) bool {
	b.shared().begin()
	b.removeStages(0, delay)
	staged := func(s *setting) {
		if s.Stages = []time.Duration{delay}; b.target.Holds {
			s.Store = storeOwn
		}
	}
	first := b.consumer(staged)
	b.send("flaky")
	first.until("waits in stage", 1)
	due := time.Now().Add(delay)
	second := b.consumer(staged)
	var ids []string
	if !b.target.Holds { // there one instance consumes at a time, and the other may get nothing for long
		ids = b.trickle(second)
	}
	for n := len(ids); len(ids) < n+10; {
		ids = append(ids, fmt.Sprintf("good-%d", len(ids)))
		b.send(ids[len(ids)-1])
	}
	b.until("all of them are acked", func() bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return !b.acked(id) })
	})
	b.Logf("%s before it was due, %d were handled, %d of them by the other instance", time.Until(due), len(ids),
		second.events.all("acked"))
	inTime := time.Now().Before(due)
	b.until("it is handled", func() bool { return b.effects()["flaky"] > 0 })
	if time.Now().Before(due.Add(-time.Second)) {
		b.Error("it was handled early")
	}
	b.wrapUp(append(ids, "flaky")...)
	b.wantNoLetters()
	for _, p := range b.processes {
		if strings.Contains(p.events.String(), eventPrefix+"waits in stage 2") {
			b.Error("it went to another stage")
		}
	}
	return inTime
}
