package conformance

import (
	"fmt"
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
