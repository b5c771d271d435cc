package stagegroup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/logging"
)

// isOfStages refuses a group in which members of another kind are, such as a Subscriber: the broker lets no stages in
// beside them.
func (g *Group) isOfStages(client sarama.Client) error {
	found, err := describe(client, g.config.Group)
	if err != nil || len(found.Members) == 0 || found.Protocol == "" || found.Protocol == strategyName {
		return nil // what cannot be asked now shows when the group is joined
	}
	return g.ofOthers()
}

func (g *Group) ofOthers() error {
	return fmt.Errorf("the consumer group %q has members that are no Stages, such as a Subscriber: stages cannot join it; "+
		"give NewStages a group of its own", g.config.Group)
}

// fails notes that the group cannot be joined. An outage has one line when it begins.
func (g *Group) fails(err error) {
	if errors.Is(err, sarama.ErrInconsistentGroupProtocol) {
		err = errors.Join(g.ofOthers(), err)
	}
	g.mu.Lock()
	begins := g.away.IsZero()
	if begins {
		g.away = time.Now()
	}
	g.mu.Unlock()
	if begins {
		logging.StagesNotJoined.Write(g.config.Logger, err, logging.Fields{"group": g.config.Group})
	}
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
