package wmkafka

import (
	"context"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/outage"
)

// maxHold is how long a message may be held while something that its handler needs is away. The session goes on
// meanwhile, and the message's context ends with it. So a message need not be requeued, only to be delivered again.
const maxHold = 24 * time.Hour

// Setup begins a group session. It writes a line if messages had to wait for it.
func (s *subscription) Setup(session sarama.ConsumerGroupSession) error {
	if lost := s.lost.Load(); lost > 0 {
		logging.SessionAgain.Write(s.config.Logger, nil, logging.Fields{
			logging.Topic: s.topic, logging.ConsumerGroup: s.group,
			"lasted": time.Since(time.Unix(0, lost)).Round(time.Millisecond),
		})
	}
	context.AfterFunc(session.Context(), func() { s.lost.Store(time.Now().UnixNano()) })
	return nil
}

// Cleanup ends it.
func (s *subscription) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim delivers the records of one partition until the session ends. It must not return before: that would end
// the session for all partitions.
func (s *subscription) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	defer func() {
		for range claim.Messages() { // closed with the session; a tracer in between would hang on the record it holds
		}
	}()
	if s.config.InFlight > 1 {
		s.consumeAhead(session, claim)
	} else {
		s.consumeInTurn(session, claim)
	}
	return nil
}

// holdable is the session's context, for messages that may be held.
func holdable(session sarama.ConsumerGroupSession) context.Context {
	return outage.WithMaxHold(session.Context(), maxHold)
}

// flight is a record whose message is on its way.
type flight struct {
	of    *delivery
	acked chan bool
}

// consumeAhead delivers records of the partition before those in front of them are acked, beginning in order, up to
// InFlight of them from the first on that is not.
func (s *subscription) consumeAhead(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) {
	ahead := make(chan flight, s.config.InFlight-1) // and the one that is waited for
	var marking sync.WaitGroup
	defer marking.Wait()
	defer close(ahead)
	marking.Go(func() { s.markAll(session, ahead) })
	ctx := holdable(session)
	for record := next(session, claim); record != nil; record = next(session, claim) {
		f := flight{s.deliver(ctx, record), make(chan bool, 1)}
		select {
		case ahead <- f:
		case <-session.Context().Done():
			return
		}
		if !f.of.fly(f.acked) {
			return
		}
	}
}

// markAll marks what has nothing unacked in front of it. It commits what is acked already in one request.
func (s *subscription) markAll(session sarama.ConsumerGroupSession, ahead <-chan flight) {
	marked, gap := false, false
	commit := func() {
		if marked {
			s.commit(session)
		}
		marked = false
	}
	for f := range ahead {
		var acked bool
		select {
		case acked = <-f.acked:
		default:
			commit()
			acked = <-f.acked
		}
		if gap = gap || !acked; !gap {
			session.MarkMessage(f.of.of.record, "")
			if marked = true; f.of.first.Load() {
				session.Commit()
			}
		}
		if len(ahead) == 0 { // nothing may come for long
			commit()
		}
	}
}

// next is nil when the session has ended.
func next(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) *sarama.ConsumerMessage {
	if session.Context().Err() != nil { // of two channels that are ready, select takes any
		return nil
	}
	select {
	case <-session.Context().Done():
		return nil
	case record := <-claim.Messages():
		return record
	}
}

// commit is for clients that do not commit by themselves.
func (s *subscription) commit(session sarama.ConsumerGroupSession) {
	if !s.config.client.Consumer.Offsets.AutoCommit.Enable {
		session.Commit()
	}
}
