package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/chain/delays"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
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

// Promise P3: a router that closes while messages wait gives them back at once and uncounted; the next one handles them
// when they are due, by the time that they were told at first.
func (b *bench) closedInStage() {
	delay := 4 * time.Second
	late := b.closedBeforeDue(delay)
	if late > delay/2 { // so it is where the broker stood still for as long: a wait that begins anew grows with the delay
		delay = 30 * time.Second
		late = newBench(b.T, b.target).closedBeforeDue(delay)
	}
	if late > delay/2 {
		b.Errorf("a message came %s after it was due: its wait began anew", late)
	}
}

// closedBeforeDue returns how late a message came whose router closed after half of its wait.
func (b *bench) closedBeforeDue(delay time.Duration) (latest time.Duration) {
	var j journal
	var l ledger
	var staged, held atomic.Int32
	change := []func(*spillway.Config){
		b.staged(delay), l.keep, afterStage(func(context.Context, stages.Waiting) { staged.Add(1) }),
		func(c *spillway.Config) {
			next := c.Stages.Subscriber
			c.Stages.Subscriber = func(topic, group string) (message.Subscriber, error) {
				sub, err := next(topic, group)
				return arriving{sub, &held}, err
			}
		},
	}
	if b.target.Holds {
		change = append(change, stored(b.delays()))
	}
	handle := b.noting(&j, func(stage int, _ *message.Message) error {
		if stage == 0 {
			return errNotYet
		}
		return nil
	})
	ids := numbered("waiting", 3)
	stop := b.startStaged(b.channel(change...), handle)
	b.ids(ids...)
	b.until("all have waited for half of their time", func() bool {
		return int(staged.Load()) >= len(ids) && (held.Load() > 0 || b.target.Holds || b.target.Stages != nil) &&
			time.Since(j.of("")[0].ended) > delay/2
	})
	stop()
	if n := len(b.effects()); n != 0 {
		b.Errorf("%d took effect before they were due", n)
	}
	b.startStaged(b.channel(change...), handle)
	b.untilApplied(ids...)
	b.wantOnce(ids...)
	b.wantNeverEarly(&j, delay)
	if n := b.placed.Load(); n != 0 {
		b.Errorf("%d letters", n)
	}
	due := map[string][]string{} // more than one where a broker delivers all again to the next router
	for id, tooks := range l.byID() {
		for _, t := range tooks {
			due[id] = append(due[id], t.Metadata[poison.KeyRetryDueAt])
		}
	}
	for _, v := range j.of("") {
		if v.stage() == 0 {
			continue
		}
		if at := v.Metadata[poison.KeyRetryDueAt]; v.Metadata[poison.KeyAttempts] != "1" ||
			!slices.Contains(due[v.UUID], at) {
			b.Errorf("%q came after %q attempts, due at %s instead of %s", v.UUID, v.Metadata[poison.KeyAttempts], at,
				due[v.UUID])
		}
		latest = max(latest, v.begun.Sub(v.due()))
	}
	return latest
}

// arriving counts what a subscriber delivers.
type arriving struct {
	message.Subscriber
	n *atomic.Int32
}

func (a arriving) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := a.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		for msg := range in {
			a.n.Add(1)
			out <- msg // the stage takes all
		}
	}()
	return out, nil
}

// Promise P1: messages in stages that no handler has any more are reported at start-up, with topic and count.
func (b *bench) abandonedStage() {
	store := b.delays()
	b.variant("in the store", func(b *bench) {
		b.abandoned(0, func(topic string, msg *message.Message) error {
			return delays.In(store).Put(context.Background(), topic, msg, time.Hour)
		}, stored(store))
	})
	b.variant("in topics", func(b *bench) {
		_, lists := b.live.(interface {
			ListWaiting(ctx context.Context, prefix string) (map[string]int, error)
		})
		if !lists {
			b.Fatalf(`the publisher has no method ListWaiting: give it one, or pin the case: Pins["%s/in topics"] = "K19: why"`,
				b.target.row.id)
		}
		b.create(b.stageTopic(time.Hour))
		b.abandoned(time.Hour, func(topic string, msg *message.Message) error { return b.live.Publish(topic, msg) })
	})
}

// abandoned puts messages where a handler of another time had them wait.
func (b *bench) abandoned(delay time.Duration, put func(topic string, msg *message.Message) error,
	change ...func(*spillway.Config)) {
	topic, ids := b.stageTopic(delay), numbered("left", 3)
	for _, id := range ids {
		if err := put(topic, newMessage(id)); err != nil {
			b.Fatal(err)
		}
	}
	var log testkit.Log
	ch := b.channel(append([]func(*spillway.Config){b.staged(shortStage), logTo(&log)}, change...)...)
	router := b.router()
	ch.Attach(router)
	_, err := ch.Stages().AddConsumerHandler(router, "another", b.topic, b.target.Subscriber(b.T, b.group),
		func(*message.Message) error {
			return nil
		})
	if err != nil {
		b.Fatal(err)
	}
	b.run(router)
	const words = "no handler of this process consumes"
	if !log.Has(words, "stage_topic", topic) || !log.Has(words, "messages", len(ids)) {
		b.Errorf("no line names %d messages in %q: %v", len(ids), topic, log.Errors())
	}
}

func logTo(log *testkit.Log) func(*spillway.Config) {
	return func(c *spillway.Config) { c.Logger = log }
}
