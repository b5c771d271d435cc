package crashlimit

import (
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
)

// pending are visits whose handlers have returned outputs that the router has yet to publish. A publisher can end the
// process too: the mark stays until the message is acked or nacked.
type pending struct {
	mu     sync.Mutex
	visits map[*later]struct{}
}

// later is a visit that ends once, at the latest with the limit.
type later struct {
	once  sync.Once
	visit visit
	ended chan struct{}
}

func (p *later) end() {
	p.once.Do(func() {
		p.visit.end()
		close(p.ended)
	})
}

// await keeps a visit open until its message is settled, and reports whether it does. While routers end it does not:
// the last of them would not wait for it.
func (l *Limit) await(c *chain.Call, v visit) bool {
	if c.Acked() || c.Nacked() {
		return false
	}
	p := &later{visit: v, ended: make(chan struct{})}
	l.pending.mu.Lock()
	defer l.pending.mu.Unlock()
	if l.leaving.Load() || l.closing.Load() || len(l.pending.visits) >= most {
		return false
	}
	if l.pending.visits == nil {
		l.pending.visits = make(map[*later]struct{})
	}
	l.pending.visits[p] = struct{}{}
	go l.settle(p, c.Msg, c.Ctx.Done())
	return true
}

func (l *Limit) settle(p *later, msg *message.Message, gone <-chan struct{}) {
	select {
	case <-msg.Acked():
	case <-msg.Nacked():
	case <-gone: // also of a caller that is no router, and acks nothing
	case <-p.ended:
	}
	l.pending.mu.Lock()
	delete(l.pending.visits, p)
	l.pending.mu.Unlock()
	p.end()
}

// endPending ends what is open, and returns when it has ended.
func (l *Limit) endPending() {
	l.pending.mu.Lock()
	open := make([]*later, 0, len(l.pending.visits))
	for p := range l.pending.visits {
		open = append(open, p)
	}
	l.pending.mu.Unlock()
	for _, p := range open {
		p.end()
	}
}
