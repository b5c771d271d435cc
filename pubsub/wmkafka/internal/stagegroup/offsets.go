package stagegroup

import (
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
)

const (
	// keepEvery is how often offsets are committed that have changed, and topics looked at that others have.
	keepEvery = time.Second
	// renewEvery is how often all offsets are committed. So a late commit of an expelled member, which is too low, does
	// not stay. And a broker forgets the offsets of a group without members after seven days.
	renewEvery = time.Minute
)

// keep takes over topics and commits offsets until the session ends.
func (s *session) keep() {
	renewed := time.Now()
	for steady := s.steady(); ; {
		if s.takeOver(); s.ctx.Err() != nil {
			return
		}
		if steady.goesOn() {
			now := time.Now()
			renew := now.Sub(renewed) > renewEvery
			if renew {
				renewed = now
			}
			s.commit(renew)
		}
		if !wait.For(s.ctx, keepEvery) {
			return
		}
	}
}

// takeOver consumes the topics whose own groups have no members, and makes the group join again when a missing topic is
// there.
func (s *session) takeOver() {
	s.mu.Lock()
	waiting := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	for _, c := range waiting {
		if s.ctx.Err() != nil {
			return
		}
		if err := s.takeOverOne(c); err != nil {
			if !c.told && c.topic.ctx.Err() == nil {
				c.told = true
				logging.StageNotTaken.Write(s.config.Logger, err,
					logging.Fields{logging.StageTopic: c.topic.Name, "group": c.topic.Group})
			}
			s.mu.Lock()
			s.waiting = append(s.waiting, c)
			s.mu.Unlock()
		}
	}
	for _, topic := range s.missing {
		if s.client.RefreshMetadata(topic) == nil {
			s.cancelGeneration()
			return
		}
	}
}

var errTaken = errors.New("the topic's own consumer group has members: it is left to them, such as instances of an " +
	"earlier version, until they have ended")

func (s *session) takeOverOne(c *claim) error {
	group, err := describe(s.client, c.topic.Group)
	if err != nil {
		return err
	}
	if len(group.Members) > 0 {
		return errTaken
	}
	coordinator, err := s.client.Coordinator(c.topic.Group)
	if err != nil {
		return err
	}
	request := &sarama.OffsetFetchRequest{Version: 1, ConsumerGroup: c.topic.Group}
	for _, partition := range c.partitions {
		request.AddPartition(c.topic.Name, partition)
	}
	response, err := coordinator.FetchOffset(request)
	if err != nil {
		_ = coordinator.Close()
		return err
	}
	var parts []*part
	for _, partition := range c.partitions {
		block := response.GetBlock(c.topic.Name, partition)
		if block == nil {
			return sarama.ErrIncompleteResponse
		}
		if block.Err != sarama.ErrNoError {
			return block.Err
		}
		p := &part{session: s, claim: c, partition: partition, leader: -1, next: block.Offset, committed: block.Offset,
			fetchSize: usualFetch}
		if p.next < 0 {
			if p.next, err = s.client.GetOffset(c.topic.Name, partition,
				s.client.Config().Consumer.Offsets.Initial); err != nil {
				return err
			}
		}
		broker, err := s.client.Leader(c.topic.Name, partition)
		if err != nil {
			return err
		}
		p.leader = broker.ID()
		parts = append(parts, p)
	}
	s.enter(c)
	c.parts = parts
	s.mu.Lock()
	s.claims[c.topic.Name] = c
	s.mu.Unlock()
	s.lead(c.topic.Name)
	return nil
}

// commit commits the offsets that have changed, or all.
func (s *session) commit(all bool) {
	s.mu.Lock()
	requests := map[*claim]map[*part]int64{}
	for _, c := range s.claims {
		for _, p := range c.parts {
			if mark := p.mark(); mark != p.committed || all {
				if requests[c] == nil {
					requests[c] = map[*part]int64{}
				}
				requests[c][p] = mark
			}
		}
	}
	s.mu.Unlock()
	var together sync.WaitGroup
	for c, marks := range requests {
		together.Go(func() {
			err := s.commitOne(c, marks)
			switch {
			case err == nil:
			case errors.Is(err, sarama.ErrUnknownMemberId), errors.Is(err, sarama.ErrIllegalGeneration),
				errors.Is(err, sarama.ErrRebalanceInProgress):
				s.leave(c)
			default:
				_ = s.client.RefreshCoordinator(c.topic.Group) // its error is that of the next try
				logging.StageNotMarked.Write(s.config.Logger, err,
					logging.Fields{logging.StageTopic: c.topic.Name, "group": c.topic.Group})
			}
		})
	}
	together.Wait()
}

func (s *session) commitOne(c *claim, marks map[*part]int64) error {
	coordinator, err := s.client.Coordinator(c.topic.Group)
	if err != nil {
		return err
	}
	request := &sarama.OffsetCommitRequest{Version: 2, ConsumerGroup: c.topic.Group,
		ConsumerGroupGeneration: sarama.GroupGenerationUndefined, RetentionTime: s.config.Pinned.Milliseconds()}
	for p, mark := range marks {
		request.AddBlock(c.topic.Name, p.partition, mark, 0, "")
	}
	response, err := coordinator.CommitOffset(request)
	if err != nil {
		_ = coordinator.Close()
		return err
	}
	var errs []error
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, mark := range marks {
		if code := response.Errors[c.topic.Name][p.partition]; code != sarama.ErrNoError {
			errs = append(errs, code)
		} else {
			p.committed = mark
		}
	}
	return errors.Join(errs...)
}

// leave gives a topic back that another consumes now, and waits for it again.
func (s *session) leave(c *claim) {
	c.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.claims, c.topic.Name)
	s.waiting = append(s.waiting, &claim{topic: c.topic, partitions: c.partitions})
}
