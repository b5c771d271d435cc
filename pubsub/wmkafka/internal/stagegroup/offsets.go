package stagegroup

import (
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
)

const (
	// keepEvery is how often offsets are committed that have changed, and topics looked at that others have.
	keepEvery = time.Second
	// renewEvery is how often all offsets are committed. So a late commit of an expelled member, which is too low, does
	// not stay.
	renewEvery = time.Minute
)

// keep asks whether this is still a member, and commits, until the session ends. It makes the group join again when a
// topic can be taken over, or a missing one is there.
func (s *session) keep() {
	for renewed := time.Now(); timing.Wait(s.ctx, keepEvery); {
		if !s.isMember() {
			continue
		}
		all := time.Since(renewed) > renewEvery
		if all {
			renewed = time.Now()
		}
		s.commit(all)
		if s.canTakeMore() {
			s.group.again()
			return
		}
		for _, p := range s.parts() {
			p.ring() // in case that it was not known for a time
		}
	}
}

func (s *session) canTakeMore() bool {
	for _, c := range s.claims {
		if c.left.Load() && c.topic.ctx.Err() == nil && s.isFree(c) == nil {
			return true
		}
	}
	for _, topic := range s.missing {
		if s.client.RefreshMetadata(topic) == nil {
			return true
		}
	}
	return false
}

// takeOver lets the partitions of a topic begin behind what is done, and reports whether the topic is this member's.
func (s *session) takeOver(c *claim) bool {
	err := s.isFree(c)
	if err == nil {
		err = s.beginAt(c)
	}
	if err != nil && c.topic.ctx.Err() == nil && !c.topic.notified.Swap(true) {
		eventStageNotTaken.Write(s.config.Logger, err,
			logging.Fields{logging.StageTopic: c.topic.Name, "group": c.topic.Group})
	}
	if err == nil {
		c.topic.notified.Store(false)
	}
	return err == nil
}

var errTaken = errors.New("the topic's own consumer group has members: it is left to them, such as instances of an " +
	"earlier version, until they have ended")

// isFree returns an error if the topic's own group has members, or that is unknown.
func (s *session) isFree(c *claim) error {
	group, err := describe(s.client, c.topic.Group)
	if err == nil && len(group.Members) > 0 {
		err = errTaken
	}
	return err
}

func (s *session) beginAt(c *claim) error {
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
	for _, partition := range c.partitions {
		block := response.GetBlock(c.topic.Name, partition)
		if block == nil {
			return sarama.ErrIncompleteResponse
		}
		if block.Err != sarama.ErrNoError {
			return block.Err
		}
		if block.Offset >= 0 { // what is marked before the session begins is where it begins
			s.of.MarkOffset(c.topic.Name, partition, block.Offset, "")
		}
	}
	return nil
}

// commit commits the offsets that have changed, or all.
func (s *session) commit(all bool) {
	marks := map[*claim]map[*part]int64{}
	for _, p := range s.parts() {
		p.mu.Lock()
		if mark := p.mark(); !p.claim.left.Load() && mark >= 0 && (mark != p.committed || all) {
			if marks[p.claim] == nil {
				marks[p.claim] = map[*part]int64{}
			}
			marks[p.claim][p] = mark
		}
		p.mu.Unlock()
	}
	var together sync.WaitGroup
	for c, of := range marks {
		together.Go(func() {
			err := s.commitOne(c, of)
			switch {
			case err == nil:
			case errors.Is(err, sarama.ErrUnknownMemberId), errors.Is(err, sarama.ErrIllegalGeneration),
				errors.Is(err, sarama.ErrRebalanceInProgress):
				c.left.Store(true) // another consumes it now
				c.end()
			default:
				_ = s.client.RefreshCoordinator(c.topic.Group) // its error is that of the next try
				eventStageNotMarked.Write(s.config.Logger, err,
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
	for p, mark := range marks {
		if code := response.Errors[c.topic.Name][p.partition]; code != sarama.ErrNoError {
			errs = append(errs, code)
			continue
		}
		p.mu.Lock()
		p.committed = mark
		p.mu.Unlock()
	}
	return errors.Join(errs...)
}

// describe asks a group's coordinator about the group, once more if the group has moved.
func describe(client sarama.Client, group string) (*sarama.GroupDescription, error) {
	for try := 1; ; try++ {
		described, err := describeOnce(client, group)
		if err == nil || try == 3 {
			return described, err
		}
		if err := client.RefreshCoordinator(group); err != nil {
			return nil, err
		}
	}
}

func describeOnce(client sarama.Client, group string) (*sarama.GroupDescription, error) {
	coordinator, err := client.Coordinator(group)
	if err != nil {
		return nil, err
	}
	response, err := coordinator.DescribeGroups(&sarama.DescribeGroupsRequest{Groups: []string{group}})
	if err != nil {
		_ = coordinator.Close()
		return nil, err
	}
	if len(response.Groups) != 1 {
		return nil, sarama.ErrIncompleteResponse
	}
	if err := response.Groups[0].Err; err != sarama.ErrNoError {
		return nil, err
	}
	return response.Groups[0], nil
}
