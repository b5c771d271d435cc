package crashlimit

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/logging"
)

// removals are marks that are to be removed later.
type removals struct {
	mu       sync.Mutex
	returned map[mark]written // of deliveries that returned
	refused  []refused
	full     atomic.Bool
}

// refused is a message that was refused. It keeps its marks until it is acked, and for a while after that.
type refused struct {
	msg  *message.Message // nil once it is acked
	ctx  context.Context  // as it was: that of the message may change meanwhile
	mark mark
	// until is when the marks of an acked message go. An ack is not always the broker's at once: Kafka's client commits
	// once a second, and a transaction commits several. If the process ends before, the message comes again, and must
	// find its marks.
	until time.Time
}

// most bounds each kind of removal, so that a store that is away costs no more memory than this. What is more is
// dropped, and that is logged: such a mark counts until its message is handled to the end again, or the sweep takes it
// after keepMarks.
const most = 1024

// add reports whether there was space for one more. What a delivery may have written takes no place of what is owed
// already: before that is removed no delivery writes.
func (r *removals) add(m mark, w written) (ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.returned == nil {
		r.returned = make(map[mark]written)
	}
	owed, there := r.returned[m]
	if !there && len(r.returned) >= most {
		return false
	}
	if !there || owed.process != "" || w.process == "" {
		r.returned[m] = w
	}
	return true
}

// of returns what is to be removed of a mark.
func (r *removals) of(m mark) (w written, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, ok = r.returned[m]
	return w, ok
}

// done notes that w was removed of a mark. What is owed since then stays.
func (r *removals) done(m mark, w written) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.returned[m] == w {
		delete(r.returned, m)
	}
}

// addRefused reports whether there was space for one more.
func (r *removals) addRefused(one refused) (ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.refused) >= most {
		return false
	}
	r.refused = append(r.refused, one)
	return true
}

// due returns the marks to remove now. Those of refused messages are among them when they were acked for as long as
// keep. A message that was nacked, or went away, comes again and keeps its marks.
func (r *removals) due(now time.Time, keep time.Duration) map[mark]written {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := r.refused[:0]
	for _, one := range r.refused {
		if one.msg != nil && closed(one.msg.Acked()) {
			one.msg, one.ctx, one.until = nil, nil, now
			if !one.mark.content { // of those that only content names, others would be refused too
				one.until = now.Add(keep)
			}
		}
		switch {
		case one.msg == nil && (keep == 0 || !now.Before(one.until)):
			if r.returned == nil {
				r.returned = make(map[mark]written)
			}
			r.returned[one.mark] = all
		case one.msg != nil && (closed(one.msg.Nacked()) || one.ctx.Err() != nil):
		default:
			kept = append(kept, one)
		}
	}
	clear(r.refused[len(kept):])
	r.refused = kept
	return maps.Clone(r.returned)
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// removeLater remembers a mark that is to be removed.
func (l *Limit) removeLater(m mark, w written) { l.remembered(l.removals.add(m, w), m) }

// remembered logs the first mark that is forgotten. More of them would say nothing new.
func (l *Limit) remembered(ok bool, m mark) {
	if !ok && l.removals.full.CompareAndSwap(false, true) {
		logging.CrashMarkLost.Write(l.config.Logger, errTooMany, m.fields())
	}
}

var errTooMany = errors.New("crashlimit: " + strconv.Itoa(most) + " marks wait to be removed")
