package stagegroup

import (
	"context"
	"time"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/logging"
)

// membership is one generation of the group for sarama, which gives it no partition.
type membership struct {
	group   *Group
	client  sarama.Client
	version int // of the group's topics
	topics  map[string]*Topic
	missing []string
	session *session
}

// Setup begins the session.
func (m *membership) Setup(s sarama.ConsumerGroupSession) error {
	partitions, err := m.group.assigned(m.client, s.MemberID())
	if err != nil {
		return err
	}
	m.session = newSession(s, m, partitions)
	m.session.start()
	m.joined(s.Context())
	return nil
}

// Cleanup ends it. Meanwhile sarama says that this member lives.
func (m *membership) Cleanup(sarama.ConsumerGroupSession) error {
	if m.session != nil {
		m.session.end()
	}
	return nil
}

// ConsumeClaim is not called: there are no partitions in sarama's sense.
func (m *membership) ConsumeClaim(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim) error {
	<-s.Context().Done()
	return nil
}

// joined notes that a session has begun, and writes a line if messages had to wait for it.
func (m *membership) joined(session context.Context) {
	m.group.mu.Lock()
	away, lost := m.group.away, m.group.lost
	m.group.away, m.group.lost = time.Time{}, time.Time{}
	m.group.mu.Unlock()
	switch fields := (logging.Fields{"group": m.group.config.Group}); {
	case !away.IsZero():
		fields["lasted"] = time.Since(away).Round(time.Millisecond)
		logging.StagesJoined.Write(m.group.config.Logger, nil, fields)
	case !lost.IsZero():
		logging.SessionAgain.Write(m.group.config.Logger, nil, logging.Fields{
			logging.ConsumerGroup: m.group.config.Group, "lasted": time.Since(lost).Round(time.Millisecond),
		})
	}
	context.AfterFunc(session, func() {
		m.group.mu.Lock()
		defer m.group.mu.Unlock()
		if m.group.version == m.version {
			m.group.lost = time.Now()
		}
	})
}
