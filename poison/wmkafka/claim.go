package wmkafka

import (
	"sync"

	"github.com/IBM/sarama"
)

// Setup begins a group session.
func (s *subscription) Setup(sarama.ConsumerGroupSession) error { return nil }

// Cleanup ends it.
func (s *subscription) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim delivers the records of one partition until the session ends. It must not return before: that would end the
// session for all partitions.
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

func (s *subscription) consumeInTurn(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) {
	for record := next(session, claim); record != nil; record = next(session, claim) {
		d := s.deliver(session, record)
		if !d.send() || !d.untilAcked() {
			return
		}
		s.mark(session, record)
	}
}

// consumeAhead delivers records of the partition before those in front of them are acked, in order, up to InFlight of them
// from the first on that is not. What is marked has nothing unacked in front of it.
func (s *subscription) consumeAhead(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) {
	type flight struct {
		record *sarama.ConsumerMessage
		acked  chan bool
	}
	ahead := make(chan flight, s.config.InFlight-1) // and the one that is waited for
	var marking sync.WaitGroup
	defer marking.Wait()
	defer close(ahead)
	marking.Go(func() {
		gap := false
		for f := range ahead {
			if gap = !<-f.acked || gap; !gap {
				s.mark(session, f.record)
			}
		}
	})
	for record := next(session, claim); record != nil; record = next(session, claim) {
		f := flight{record, make(chan bool, 1)}
		select {
		case ahead <- f:
		case <-session.Context().Done():
			return
		}
		d := s.deliver(session, record)
		if !d.send() {
			f.acked <- false
			return
		}
		go func() { f.acked <- d.untilAcked() }()
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

func (s *subscription) mark(session sarama.ConsumerGroupSession, record *sarama.ConsumerMessage) {
	session.MarkMessage(record, "")
	if !s.config.Sarama.Consumer.Offsets.AutoCommit.Enable {
		session.Commit()
	}
}
