package crashlimit

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/middleware/internal/deliveries"
)

func fieldsOf(m deliveries.Key) watermill.LogFields {
	return logging.Fields{logging.Handler: m.Consumer, logging.Key: m.ID}
}

func (l *Limit) markOf(c *chain.Call) deliveries.Key {
	msg := c.Msg
	consumer := message.HandlerNameFromCtx(msg.Context())
	var id string
	if l.config.Key != nil {
		safecall.Hook(l.config.Logger, "Config.Key", func() { id = l.config.Key(msg) })
	}
	if id == "" {
		id = msg.UUID
	}
	// A producer may forge the count, and gains nothing: all deliveries of its message have the same.
	m := deliveries.Key{Consumer: consumer, ID: id, Redrives: int64(boundedtext.Count(msg.Metadata[chain.KeyRedriveCount]))}
	if c.Reentry != nil && c.Reentry.Released > 0 {
		m.Redrives = -c.Reentry.Released
	}
	if id == "" {
		m.Content, m.ID = true, contentOf(msg)
	}
	if l.config.Store != nil {
		m.Consumer, m.ID = l.config.Store.Column(m.Consumer), l.config.Store.Column(m.ID)
	}
	return m
}

// contentOf is the hash of a message without an id. Lengths come before what they measure, so that no two messages run
// into the same bytes.
func contentOf(msg *message.Message) string {
	sum := sha256.New()
	add(sum, string(msg.Payload))
	for _, key := range slices.Sorted(maps.Keys(msg.Metadata)) {
		add(sum, key)
		add(sum, msg.Metadata[key])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func add(sum hash.Hash, s string) {
	_, _ = sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
	_, _ = sum.Write([]byte(s))
}

// enter leaves the mark of a delivery, and reports whether it did: not if the message has a delivery of that number.
func (l *Limit) enter(c *chain.Call, m deliveries.Key, w deliveries.Mark) (entered bool, err error) {
	// a statement that is cut off, because the message goes away, may have been carried out
	ctx, cancel := l.bounded(context.WithoutCancel(c.Ctx))
	defer cancel()
	if owed, owes := l.removals.of(m); owes { // else a delivery that did return would count
		if err := l.config.Store.Clear(ctx, m, owed); err != nil {
			return false, err
		}
		l.removals.done(m, owed)
	}
	return l.config.Store.Enter(ctx, m, w)
}

// marksOf returns what deliveries of a message left, in their order.
func (l *Limit) marksOf(c *chain.Call, m deliveries.Key) ([]deliveries.Found, error) {
	ctx, cancel := l.bounded(context.WithoutCancel(c.Ctx))
	defer cancel()
	return l.config.Store.Marks(ctx, m)
}

// failed notes that a mark was not written, and is to be removed if it was nevertheless. The message goes on without.
func (l *Limit) failed(m deliveries.Key, w deliveries.Mark, err error) {
	l.removeLater(m, deliveries.Mark{Process: w.Process})
	l.outage.began(l.config.Logger, err)
}

// remove takes the mark of a delivery that came to an end. What is not removed now is removed by the beats.
func (l *Limit) remove(m deliveries.Key, w deliveries.Mark) {
	// what others wrote meanwhile is theirs; what was there before was seen by a later one, which clears it
	if w.Delivery == 1 {
		w = deliveries.Mark{Process: w.Process}
	} else {
		w.Process = ""
	}
	if l.outage.lasts() {
		l.removeLater(m, w)
		return
	}
	ctx, cancel := l.bounded(context.Background())
	defer cancel()
	if err := l.config.Store.Clear(ctx, m, w); err != nil {
		l.removeLater(m, w)
		l.outage.began(l.config.Logger, err)
	}
}

// share is the one mark that the deliveries of a message in this process have at a time.
type share struct {
	visits  int
	written deliveries.Mark
	removed chan struct{} // not nil while the last of them removes the mark
	decided chan struct{} // closed when the first of them goes on, or does not
	refused bool          // it does not
}

func (s *share) decide(err error) {
	s.refused = err != nil
	close(s.decided)
}

// share takes part in the mark of a message. It reports whether this delivery is the first, which writes it.
func (a *admission) share(m deliveries.Key) (s *share, first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		s = a.shared[m]
		if s == nil {
			break
		}
		if s.removed == nil {
			s.visits++
			return s, false
		}
		removed := s.removed
		a.mu.Unlock()
		<-removed // a statement, whose time is bounded
		a.mu.Lock()
	}
	if a.shared == nil {
		a.shared = make(map[deliveries.Key]*share)
	}
	s = &share{visits: 1, decided: make(chan struct{})}
	a.shared[m] = s
	return s, true
}

// part ends a delivery's share. The last one removes the mark.
func (a *admission) part(m deliveries.Key, s *share, remove func(deliveries.Key, deliveries.Mark)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.visits--; s.visits > 0 {
		return
	}
	if s.written.Delivery > 0 {
		s.removed = make(chan struct{})
		a.mu.Unlock()
		remove(m, s.written)
		a.mu.Lock()
		close(s.removed)
	}
	delete(a.shared, m)
}

// wrote notes the mark that a delivery wrote.
func (a *admission) wrote(s *share, w deliveries.Mark) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.written = w
}

// removals are the marks of deliveries that returned, which are to be removed later.
type removals struct {
	mu   sync.Mutex
	owed map[deliveries.Key]deliveries.Mark
	full atomic.Bool
}

// most bounds the removals, so that a store that is unavailable costs no more memory than this. What is more is dropped,
// and that is logged: such a mark counts until its message is handled to the end again, or the sweep takes it after
// keepMarks.
const most = 1024

// add reports whether there was space for one more. What a delivery may have written takes no place of what is owed
// already: before that is removed no delivery writes.
func (r *removals) add(m deliveries.Key, w deliveries.Mark) (ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.owed == nil {
		r.owed = make(map[deliveries.Key]deliveries.Mark)
	}
	owed, there := r.owed[m]
	if !there && len(r.owed) >= most {
		return false
	}
	if !there || owed.Process != "" || w.Process == "" {
		r.owed[m] = w
	}
	return true
}

// of returns what is to be removed of a mark.
func (r *removals) of(m deliveries.Key) (w deliveries.Mark, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, ok = r.owed[m]
	return w, ok
}

// done notes that w was removed of a mark. What is owed since then stays.
func (r *removals) done(m deliveries.Key, w deliveries.Mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.owed[m] == w {
		delete(r.owed, m)
	}
}

// all returns the marks to remove.
func (r *removals) all() map[deliveries.Key]deliveries.Mark {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.owed)
}

// removeLater remembers a mark that is to be removed, and logs the first one that is forgotten. More of them would say
// nothing new.
func (l *Limit) removeLater(m deliveries.Key, w deliveries.Mark) {
	if !l.removals.add(m, w) && l.removals.full.CompareAndSwap(false, true) {
		eventCrashMarkLost.Write(l.config.Logger, errTooMany, fieldsOf(m))
	}
}

var errTooMany = errors.New("crashlimit: " + strconv.Itoa(most) + " marks wait to be removed")

// pending are visits whose handlers have returned outputs that the router has yet to publish. A publisher can end the
// process too: the mark stays until the message is acked or nacked.
type pending struct {
	mu      sync.Mutex
	n       int
	stop    chan struct{} // closed when the limit ends
	settles sync.WaitGroup
}

// await keeps a visit open until its message is settled, and reports whether it does. While routers end it does not:
// the last of them would not wait for it.
func (l *Limit) await(c *chain.Call, v visit) bool {
	p := &l.pending
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.Acked() || c.Nacked() || l.closing.Load() || p.n >= most {
		return false
	}
	if p.stop == nil {
		p.stop = make(chan struct{})
	}
	p.n++
	msg, gone, stop := c.Msg, c.Ctx.Done(), p.stop
	p.settles.Go(func() {
		select {
		case <-msg.Acked():
		case <-msg.Nacked():
		case <-gone: // also of a caller that is no router, and acks nothing
		case <-stop:
		}
		v.end()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.n--
	})
	return true
}

// end ends what is open, and returns when it has ended.
func (p *pending) end() {
	p.mu.Lock()
	if p.stop != nil {
		close(p.stop)
		p.stop = nil
	}
	p.mu.Unlock()
	p.settles.Wait()
}
