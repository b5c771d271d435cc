package conformance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testing/downstream"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
)

// Feature R12: the downstream refuses connections while messages come, and later asks for a wait. The messages are
// held: none is set aside, none goes to a stage, and the breaker's probes are the only calls.
func (b *bench) downstreamUnavailable() {
	lasts, rate := b.outageLasts()
	o := b.outage(10 * time.Second)
	o.b.startStaged(o.b.channel(o.b.staged(time.Second), o.guarded), o.handle)
	sent := o.b.traffic(rate, goodOnly)
	o.b.untilAllApplied([]string{goodOnly(0)})
	for i, mode := range []downstream.Mode{downstream.Unavailable, downstream.Busy} {
		o.set(mode)
		o.untilBreaker(circuit.Open, i+1)
		time.Sleep(lasts)
		lasts /= 3
		o.set(downstream.Up)
		o.untilBreaker(circuit.Closed, i+1)
	}
	ids := sent.stop()
	o.b.untilAllApplied(ids)
	o.wantHeld(ids)
}

// wantHeld checks what an outage must not do.
func (o *outageBench) wantHeld(ids []string) {
	o.b.Helper()
	o.b.wantOnce(ids...)
	o.wantNothingAside()
	if n := o.stagings.Load(); n > 0 {
		o.b.Errorf("%d messages went to a stage because of the outage", n)
	}
	if n := o.failures.Load(); n > 4*o.inHand(ids) { // two outages, each with the message in hand and the first probe
		o.b.Errorf("%d failures came to Retry: an outage counts once at most, for the message in hand", n)
	}
	o.wantOnlyProbes(o.inHand(ids))
	o.b.Logf("%d messages, %d calls; the breaker: %s", len(ids), o.calls.Load(), o.history())
}

// inHand returns how many messages the breaker may have let through that have not called the downstream yet, when it
// opens. In process hundreds of messages are in hand at once, and SQLite's one writer keeps them waiting.
func (o *outageBench) inHand(ids []string) int64 {
	if o.b.target.CreateTopic == nil {
		return int64(len(ids))
	}
	return 1
}

func (o *outageBench) wantNothingAside() {
	o.b.Helper()
	if n := o.b.placed.Load() + o.b.discarded.Load(); n > 0 {
		o.b.Errorf("%d healthy messages were set aside", n)
	}
}

// wantOnlyProbes checks that while the breaker was open it let no more through than the probes that fit in between with
// growing waits, beside the messages that had passed it before.
func (o *outageBench) wantOnlyProbes(passed int64) {
	o.b.Helper()
	defer func() {
		if o.b.Failed() {
			o.b.Log(o.history())
		}
	}()
	o.mu.Lock()
	defer o.mu.Unlock()
	open := -1
	for i, c := range o.changes {
		switch {
		case c.To == circuit.Open && open < 0:
			open = i
		case c.To == circuit.Ramping && open >= 0:
			lasted := o.at[i].Sub(o.at[open])
			if calls, most := o.begun[i]-o.begun[open], mostProbes(lasted)+passed+1; calls > most { // the ramp has begun
				o.b.Errorf("%d calls while the breaker was open for %s, and %d fit in between", calls, lasted, most)
			}
			if n := o.failed[i] - o.failed[open]; n > passed {
				o.b.Errorf("%d failures came to Retry while the breaker was open", n)
			}
			open = -1
		}
	}
}

// mostProbes returns how many probes fit into a time: the waits are drawn from 125 to 250 ms at first, and twice as
// long each time, up to 2.5 to 5 s.
func mostProbes(lasted time.Duration) (n int64) {
	for wait := 125 * time.Millisecond; lasted > 0; wait = min(2*wait, 2500*time.Millisecond) {
		lasted -= wait
		n++
	}
	return n
}

// Feature R12: the downstream answers nothing, and calls end by their time-out. Messages that failed before the breaker
// knew go to a stage at most; none is set aside.
func (b *bench) downstreamHangs() {
	lasts, rate := b.outageLasts()
	o := b.outage(500 * time.Millisecond) // longer than a slow machine takes
	o.b.startStaged(o.b.channel(o.b.staged(3*time.Second, 10*time.Second), o.guarded, o.window(time.Second)), o.handle)
	sent := o.b.traffic(rate, goodOnly)
	o.b.untilAllApplied([]string{goodOnly(0)})
	o.set(downstream.Hanging)
	o.untilBreaker(circuit.Open, 1)
	time.Sleep(lasts)
	o.set(downstream.Up)
	o.untilBreaker(circuit.Closed, 1)
	ids := sent.stop()
	o.b.untilAllApplied(ids)
	o.b.wantOnce(ids...)
	o.wantNothingAside()
	o.wantOnlyProbes(o.inHand(ids))
	o.b.Logf("%d messages, %d calls, %d went to a stage; the breaker: %s", len(ids), o.calls.Load(), o.stagings.Load(),
		o.history())
}

// Feature R12: 3 % of the messages fail, some for good and some with plain errors. The breaker stays closed.
func (b *bench) poisonAmongGood() {
	o := b.outage(10 * time.Second)
	if err := o.server.Choose(func(id string) downstream.Mode {
		if strings.HasPrefix(id, "plain") {
			return downstream.Failing
		}
		return downstream.Up
	}); err != nil {
		o.b.Fatal(err)
	}
	o.b.start(o.b.channel(o.guarded), o.handlePermanent)
	const all = 200
	var good []string
	poison := 0
	for i := range all {
		id := goodOnly(i)
		switch {
		case i%66 == 20:
			id, poison = fmt.Sprintf("permanent-%d", i), poison+1
		case i%66 == 53:
			id, poison = fmt.Sprintf("plain-%d", i), poison+1
		default:
			good = append(good, id)
		}
		o.b.ids(id)
	}
	o.b.untilAllApplied(good)
	o.b.untilPlaced(int32(poison))
	o.b.wantOnce(good...)
	for _, l := range o.b.letters(o.b.dlq(), poison) {
		if strings.HasPrefix(l.Original.UUID, "good") {
			o.b.Errorf("%q was set aside, and can succeed", l.Original.UUID)
		}
	}
	if history := o.history(); history != "" {
		o.b.Errorf("%d of %d messages failed, and the breaker was %s", poison, all, history)
	}
}

// Feature R12: the downstream fails for half of the keys. The other half goes on, and those that fail are set aside.
func (b *bench) halfFails() {
	o := b.outage(10 * time.Second)
	if err := o.server.Choose(func(id string) downstream.Mode {
		if strings.HasPrefix(id, badPrefix) {
			return downstream.Failing
		}
		return downstream.Up
	}); err != nil {
		o.b.Fatal(err)
	}
	o.b.start(o.b.channel(o.guarded, o.window(3*time.Second), func(c *spillway.Config) {
		// if a slow machine brings too few of both kinds within a window, what fails waits for all of Doubt
		c.Breaker.MaxProbe, c.Breaker.Doubt = time.Second, 10*time.Second
	}), o.handle)
	const bad = 24
	sent := o.b.traffic(40, func(i int) string { // good ones go on: a breaker that sees only failures holds them all
		if i%2 == 1 && i < 2*bad {
			return fmt.Sprintf("%s-%d", badPrefix, i)
		}
		return goodOnly(i)
	})
	for n := int32(1); n <= bad; n++ { // each within patience: the breaker opens and closes meanwhile
		o.b.until(fmt.Sprintf("%d of the bad ones are set aside", n), func() bool { return o.b.placed.Load() >= n })
	}
	good, _ := sortOut(sent.stop())
	o.b.untilAllApplied(good)
	o.b.wantOnce(good...)
	for _, l := range o.b.letters(o.b.dlq(), bad) {
		if !strings.HasPrefix(l.Original.UUID, badPrefix) {
			o.b.Errorf("%q was set aside, and can succeed", l.Original.UUID)
		}
	}
	o.b.Logf("%d messages; the breaker: %s", bad+len(good), o.history())
}

// Feature R12: a breaker that is opened by hand lets nothing through, and nothing is lost, until it is closed by hand.
func (b *bench) frozenByHand() {
	o := b.outage(10 * time.Second)
	ch := o.b.channel(o.guarded)
	if err := ch.Breaker().Open(handlerName, "a deploy"); err != nil {
		o.b.Fatal(err)
	}
	o.b.start(ch, o.handle)
	sent := o.b.traffic(40, goodOnly)
	o.b.until("40 messages are sent", func() bool { return len(sent.sent()) >= 40 })
	if n := o.calls.Load(); n > 0 {
		o.b.Errorf("%d calls of a frozen handler", n)
	}
	if err := ch.Breaker().Close(handlerName); err != nil {
		o.b.Fatal(err)
	}
	ids := sent.stop()
	o.b.untilAllApplied(ids)
	o.b.wantOnce(ids...)
	o.wantNothingAside()
}

// Feature R12, promises P1, P3, P7: while the breaker is open another instance joins, the first is killed, a third
// takes its place, and the second is closed in order, as by a deploy.
func (b *bench) changedWhileOpen() {
	lasts, rate := b.outageLasts()
	b.shared().begin()
	server, err := downstream.New()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(server.Close)
	guarded := func(s *setting) {
		s.Downstream, s.Guarded, s.Stages = server.Addr(), true, []time.Duration{time.Second}
	}
	set := func(mode downstream.Mode) {
		if err := server.Set(mode); err != nil {
			b.Fatal(err)
		}
	}
	first := b.consumer(guarded)
	sent := b.traffic(rate/4, goodOnly)
	b.until("a message is handled", func() bool { return len(b.effects()) > 0 })
	set(downstream.Unavailable)
	first.until("breaker", circuit.Open)
	second := b.consumer(guarded)
	time.Sleep(lasts / 3)
	first.kill()
	b.consumer(guarded)
	time.Sleep(lasts / 3)
	second.stop()
	time.Sleep(lasts / 3)
	set(downstream.Up)
	ids := sent.stop()
	b.untilAllApplied(ids)
	b.wantNoLetters()
	if slices.ContainsFunc(b.processes, func(p *process) bool { return p.events.all("waits") > 0 }) {
		b.Error("a message went to a stage because of the outage")
	}
	b.wrapUp(ids...)
}

// Feature R12, promises P1, P3, P7: the server that holds messages, keys and what the handler writes is killed under
// load, and away for a time.
func (b *bench) serverKilled() {
	lasts, rate := b.outageLasts()
	b.need("Service", b.target.Service != "")
	b.begin()
	b.consumer(func(s *setting) { s.Guarded = true })
	sent := b.traffic(rate/4, goodOnly)
	b.until("a message is handled", func() bool { return len(b.effects()) > 0 })
	if b.target.Service == "rabbitmq" {
		services.KeepQueues(b.T)
	}
	services.Kill(b.T, b.target.Service)
	time.Sleep(lasts)
	down := len(sent.sent())
	services.Start(b.T, b.target.Service)
	b.until("messages are sent after the return", func() bool { return len(sent.sent()) > down })
	ids := sent.stop()
	b.untilAllApplied(ids)
	b.wantNoLetters()
	b.wrapUp(ids...)
}
