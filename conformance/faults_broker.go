package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/faultproxy"
)

// Promises P1, P4: the dead-letter topic is deleted under a running consumer. While it is not there nothing is acked
// that belongs there; with the next one everything goes on.
func (b *bench) destinationDeleted() {
	b.need("DeleteTopic", b.target.DeleteTopic != nil)
	b.begin()
	p := b.consumer()
	b.send("bad-1")
	b.until("it is acked", func() bool { return p.said("acked", "bad-1") })
	b.target.DeleteTopic(b.T, b.dlq()) // with the letter
	b.send("bad-2", "good-3")
	b.wantKept(p, "bad-2")
	b.create(b.dlq())
	b.finish("bad-2", "good-3")
}

// Promises P1, P4: the dead-letter topic accepts nothing for a while.
func (b *bench) destinationReadOnly() {
	b.need("ReadOnly", b.target.ReadOnly != nil)
	b.begin()
	writable := b.target.ReadOnly(b.T, b.dlq())
	p := b.consumer()
	b.send("good-1", "bad-2", "good-3")
	b.wantKept(p, "bad-2")
	writable()
	b.finish("good-1", "bad-2", "good-3")
}

// Promises P1, P4: the connection to the broker of the dead letters is cut, slow, or silent, while that of the
// source works.
func (b *bench) destinationUnreachable() {
	b.need("Through and Address", b.target.Through != nil && b.target.Address != "")
	b.together(map[string]func(*bench){
		"cut":       func(b *bench) { b.unreachable((*faultproxy.Proxy).Cut) },
		"half-open": func(b *bench) { b.unreachable((*faultproxy.Proxy).HalfOpen) },
		"latency":   (*bench).slowDestination,
	})
}

func (b *bench) unreachable(fail func(*faultproxy.Proxy)) {
	b.begin()
	proxy := b.proxy()
	p := b.consumer(func(s *setting) { s.DeadThrough = proxy.Addr() })
	var ids []string // more of them than publishers have channels: all are in use when it happens
	for i := range 6 {
		ids = append(ids, fmt.Sprintf("bad-1%d", i))
	}
	b.send(ids...)
	b.until("the letters are placed", func() bool { return b.everyPlaced(ids) })
	fail(proxy)
	b.send("bad-2", "good-3")
	b.wantKept(p, "bad-2")
	proxy.Heal()
	b.finish(append(ids, "bad-2", "good-3")...)
}

// slowDestination: a slow connection only slows things down. A letter that a publisher gives up on in its own time may
// come again.
func (b *bench) slowDestination() {
	b.begin()
	proxy := b.proxy()
	b.consumer(func(s *setting) { s.DeadThrough = proxy.Addr() })
	proxy.Slow(300*time.Millisecond, 100*time.Millisecond)
	var ids []string
	for i := range 3 {
		ids = append(ids, fmt.Sprintf("bad-%d", i), fmt.Sprintf("good-%d", i))
	}
	b.send(ids...)
	b.finish(ids...)
}

// wantKept waits until the process learns what becomes of a letter, and then long enough for an ack. A message whose
// letter was refused is not acked. One that was placed after all, in a topic made anew for one, is for the account.
func (b *bench) wantKept(p *process, id string) {
	b.Helper()
	b.until("the letter is refused", func() bool {
		return p.said("refused", id) || p.said("placed", id) || p.said("acked", id)
	})
	time.Sleep(commitTime)
	if p.said("acked", id) && !p.said("placed", id) {
		b.Errorf("%q is acked, and no placement of its letter was confirmed", id)
	}
}

// Promise P3: another instance joins the group while a message waits for its next attempt. It gets messages at once,
// nothing is set aside, and no attempt is counted for it.
func (b *bench) joinedInBackoff() {
	b.shared().begin()
	down := filepath.Join(b.TempDir(), "down")
	if err := os.WriteFile(down, nil, 0o600); err != nil {
		b.Fatal(err)
	}
	patient := func(s *setting) { s.Down, s.Wait = down, 30*time.Second } // longer than a busy machine takes to join
	first := b.consumer(patient)
	b.send("waiting")
	first.until("failed", 1)
	ids := b.trickle(b.consumer(patient))
	if err := os.Remove(down); err != nil {
		b.Fatal(err)
	}
	b.finish(append(ids, "waiting")...)
	b.wantNoLetters()
	for _, p := range b.processes {
		if p.said("failed", 2) {
			b.Error("the attempt was counted")
		}
	}
}

// Promises P3, P7: another instance joins the group while a handler is busy for 20 s and does not look at its context.
// It gets messages long before that, and the effect of the busy one stays one. If the subscriber goes on while letters
// are placed, some are open before the busy one.
func (b *bench) joinedWhileBusy() {
	const busy = 20 * time.Second
	b.shared().begin()
	open := idsOf(badPrefix, min(b.target.Resumed, 5))
	halt := map[string]string{"busy": stepHandling}
	for _, id := range open {
		halt[id] = stepLetter
	}
	first := b.consumer(func(s *setting) { s.Halt = halt })
	b.send(open...) // first, because the busy one may hold the only lock of the table of effects
	b.until("all letters are open", func() bool { return first.events.all("at") == len(open) })
	b.send("busy")
	first.until("at", stepHandling, "busy")
	begun := time.Now()
	ids := b.trickle(b.consumer())
	b.Logf("the other instance got messages %s after the handler began", time.Since(begun))
	time.Sleep(busy - time.Since(begun))
	first.proceed()
	b.finish(slices.Concat(ids, open, []string{"busy"})...)
	if len(open) == 0 {
		b.wantNoLetters()
	}
}

// Promises P3, P7: the connection to the source is lost in the middle of a handler, which finishes all the same, or
// gives up when its context ends. Neither is a failure of the message.
func (b *bench) connectionLost() {
	b.need("SubscriberThrough and Address", b.target.SubscriberThrough != nil && b.target.Address != "")
	b.together(map[string]func(*bench){
		"it finishes": func(b *bench) { b.cutUnder("good-2", "at handling good-2") },
		givesUp:       func(b *bench) { b.cutUnder("leaving-2", "waits leaving-2") },
	})
}

// givesUp is the case of F7 that a pub/sub cannot have if it leaves a context alone when the connection is lost.
const givesUp = "it gives up"

func (b *bench) cutUnder(id, handling string) {
	b.begin()
	proxy := b.proxy()
	p := b.consumer(func(s *setting) { s.SourceThrough, s.Halt = proxy.Addr(), map[string]string{"good-2": stepHandling} })
	b.send("good-1", id, "good-3")
	p.until(handling)
	proxy.Cut()
	if b.target.Pins["F7/"+givesUp] == "" { // the context of a message ends with the connection, as K11 says
		p.until("gone", id)
	}
	time.Sleep(commitTime) // no part waits so long for the handler
	proxy.Heal()
	p.proceed()
	b.finish("good-1", id, "good-3")
	b.wantNoLetters()
}
