package wmkafka

import (
	"context"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/wait"
)

// Setup begins a group session.
func (s *subscription) Setup(sarama.ConsumerGroupSession) error { return nil }

// Cleanup ends it.
func (s *subscription) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim delivers the records of one partition, one after the other, until the session ends. It must not return
// before: that would end the session for all partitions.
func (s *subscription) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	defer func() {
		for range claim.Messages() { // closed with the session; a tracer in between would hang on the record it holds
		}
	}()
	for {
		select {
		case <-session.Context().Done():
			return nil
		case record, open := <-claim.Messages():
			if !open || !s.deliver(session, record) {
				return nil
			}
		}
	}
}

// deliver delivers a record until it is acked, and tells whether the session goes on.
func (s *subscription) deliver(session sarama.ConsumerGroupSession, record *sarama.ConsumerMessage) bool {
	ctx := &recordContext{Context: session.Context(), record: record, group: s.config.ConsumerGroup}
	msg := read(s.config.Unmarshaler, record)
	for pause := s.config.NackBackoff; ; pause = min(2*pause, s.config.MaxNackBackoff) {
		switch s.deliverOnce(ctx, msg) {
		case acked:
			session.MarkMessage(record, "")
			if !s.config.Sarama.Consumer.Offsets.AutoCommit.Enable {
				session.Commit()
			}
			return session.Context().Err() == nil
		case abandoned:
			s.config.Logger.Debug("The group session ended before the message was settled; it will be delivered again", watermill.LogFields{
				"topic": record.Topic, "partition": record.Partition, "offset": record.Offset,
			})
			return false
		}
		if !wait.For(session.Context(), pause) {
			return false
		}
		msg = msg.Copy()
	}
}

type outcome int

const (
	acked outcome = iota
	nacked
	abandoned // neither, and the session has ended: what becomes of the message now concerns nobody
)

// deliverOnce sends msg to the consumer and waits until it is settled, or until the session has ended and the grace after it.
func (s *subscription) deliverOnce(ctx context.Context, msg *message.Message) outcome {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	msg.SetContext(ctx)
	select {
	case s.output <- msg:
	case <-ctx.Done():
		return abandoned
	}
	select {
	case <-msg.Acked():
		return acked
	case <-msg.Nacked():
		return nacked
	case <-ctx.Done():
	}
	// The handler may just have done its work: an ack in time spares it a second delivery, because marks are committed when
	// the session is released.
	grace := time.NewTimer(s.config.SettleGrace)
	defer grace.Stop()
	select {
	case <-msg.Acked():
		return acked
	case <-msg.Nacked():
		return abandoned
	case <-grace.C:
		return abandoned
	}
}
