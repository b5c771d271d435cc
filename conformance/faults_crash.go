package conformance

import (
	"slices"
	"strings"
	"time"
)

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
	if b.target.GoesOn > 0 && strings.HasPrefix(id, badPrefix) {
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
	open := idsOf(badPrefix, min(b.target.GoesOn, 500))
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
