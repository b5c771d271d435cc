package wmkafka

import (
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// marks says how far a partition may be committed while failed messages are being placed elsewhere: up to the first
// message whose placement is not confirmed, or else behind the last message that is done. Offsets may have gaps:
// compaction and transactions leave some. It is not safe for concurrent use.
type marks struct {
	most, mostBytes int // of the messages that are being placed
	ahead           int // messages that are taken from the first of those on

	taken  int
	behind int64        // the offset behind the last message that is done or being placed
	open   []*placement // in the order of their offsets; the first is not confirmed
	number int          // those of open that are not confirmed
	bytes  int
	latest map[string]*placement // by key, of those that are not confirmed
}

// placement is a message that is being placed elsewhere.
type placement struct {
	offset    int64
	taken     int // when it was, among all
	key       string
	size      int
	confirmed bool
	before    *placement    // of the same key
	after     chan struct{} // closed when this one is confirmed; nil if none waits
	due       time.Time     // when it is delivered again, if it came back
}

// take notes that another message is taken.
func (m *marks) take() { m.taken++ }

// done notes that a message is done that was not placed.
func (m *marks) done(offset int64) { m.behind = max(m.behind, offset+1) }

// place notes that a message is being placed. It is the latest that was taken. A key of nil is none.
func (m *marks) place(offset int64, key []byte, size int) *placement {
	p := &placement{offset: offset, taken: m.taken, size: size}
	if key != nil {
		p.key = string(key)
		p.before = m.latest[p.key]
		if m.latest == nil {
			m.latest = make(map[string]*placement)
		}
		m.latest[p.key] = p
	}
	m.done(offset)
	m.open = append(m.open, p)
	m.number++
	m.bytes += size
	return p
}

// confirm notes that a message has been placed.
func (m *marks) confirm(p *placement) {
	p.confirmed = true
	m.number--
	m.bytes -= p.size
	if before := p.first(); m.latest[p.key] == p && before == nil {
		delete(m.latest, p.key)
	} else if m.latest[p.key] == p {
		m.latest[p.key] = before
	}
	if p.after != nil {
		close(p.after)
	}
	for len(m.open) > 0 && m.open[0].confirmed {
		m.open[0] = nil
		m.open = m.open[1:]
	}
}

// position is the offset up to which all messages are done. It never goes back.
func (m *marks) position() int64 {
	if len(m.open) > 0 {
		return m.open[0].offset
	}
	return m.behind
}

// full reports whether no message may be taken until a placement is confirmed.
func (m *marks) full() bool {
	return m.number >= m.most || m.bytes >= m.mostBytes || len(m.open) > 0 && m.taken-m.open[0].taken >= m.ahead
}

// first returns the message before p with its key that has to be placed first, or nil.
func (p *placement) first() *placement {
	for p.before != nil && p.before.confirmed {
		p.before = p.before.before
	}
	return p.before
}

// turn returns what is closed when first has been placed, or nil. Then ask again.
func (p *placement) turn() <-chan struct{} {
	first := p.first()
	if first == nil {
		return nil
	}
	if first.after == nil {
		first.after = make(chan struct{})
	}
	return first.after
}

// marker marks the position of a partition in its session. It is not safe for concurrent use.
type marker struct {
	session    sarama.ConsumerGroupSession
	auto       bool // the client commits by itself
	marked     int64
	committing bool
	commits    bool // there is something to commit
}

func (m *marker) mark(of *sarama.ConsumerMessage, position int64) {
	if position > m.marked {
		m.session.MarkOffset(of.Topic, of.Partition, position, "")
		m.marked, m.commits = position, true
	}
}

// commitMarked is for clients that do not commit by themselves. One request commits what was marked during the one
// before. It takes the lock that guards the marker, and lets go of it meanwhile.
func (m *marker) commitMarked(lock sync.Locker) {
	if m.auto {
		return
	}
	lock.Lock()
	defer lock.Unlock()
	for m.commits && !m.committing {
		m.commits, m.committing = false, true
		lock.Unlock()
		m.session.Commit()
		lock.Lock()
		m.committing = false
	}
}

func (s *subscription) marker(session sarama.ConsumerGroupSession) marker {
	return marker{session: session, auto: s.config.client.Consumer.Offsets.AutoCommit.Enable}
}
