package wmkafka

import (
	"sync"

	"github.com/IBM/sarama"
)

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
