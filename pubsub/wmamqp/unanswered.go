package wmamqp

import (
	"sync/atomic"
	"time"
)

// unansweredFor is how many times ConfirmTimeout a connection may answer no message.
const unansweredFor = 3

// unanswered is since when the broker answers no message, in nanoseconds; 0 while it does.
type unanswered struct{ since atomic.Int64 }

// heard notes whether the broker answered a message, with a confirm or an error. A node that hangs or has lost its
// cluster can go on with heartbeats, and answer nothing else: then its connection is closed, and the next node is
// dialled.
func (p *Publisher) heard(answered bool) {
	since := p.unanswered.since.Load()
	if answered {
		if since != 0 {
			p.unanswered.since.Store(0)
		}
		return
	}
	now := time.Now()
	if since == 0 {
		p.unanswered.since.CompareAndSwap(0, now.Add(-p.config.ConfirmTimeout).UnixNano())
		return
	}
	long := now.Sub(time.Unix(0, since)) >= unansweredFor*p.config.ConfirmTimeout
	if long && p.unanswered.since.CompareAndSwap(since, 0) {
		p.conn.sockets.cut()
	}
}
