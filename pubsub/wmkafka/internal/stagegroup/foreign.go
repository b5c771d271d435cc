package stagegroup

import (
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
