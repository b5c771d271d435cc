package stagegroup

import (
	"context"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/due"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/safecall"
	"github.com/watermill-spillway/spillway/internal/wait"
)

// part is a partition. All of it is guarded by the session's lock.
type part struct {
	claim     *claim
	partition int32
	leader    int32
	next      int64 // the offset to fetch
	fetchSize int32
	records   []*flight // in order, from the first unacked one on
	bytes     int
	full      bool // it had no room for more, and there may be more
	committed int64
	due       time.Time // when the next record of the window is; zero for none
}

// flight is a record that waits, or whose message is handled.
type flight struct {
	record      *sarama.ConsumerMessage
	arrived     time.Time
	msg         *message.Message // nil until it is in the window
	until       time.Time
	sent, acked bool
}

// mark returns the offset behind all that is done.
func (p *part) mark() int64 {
	if len(p.records) > 0 {
		return p.records[0].record.Offset
	}
	return p.next
}

// far is later than anything is due.
const far = 24 * time.Hour

// schedule hands over what is due.
func (s *session) schedule() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.mu.Lock()
		now := time.Now()
		s.scheduled = now.Add(far)
		for _, c := range s.claims {
			for _, p := range c.parts {
				s.launch(p, now)
				if !p.due.IsZero() && p.due.Before(s.scheduled) {
					s.scheduled = p.due
				}
			}
		}
		planned := s.scheduled
		timer.Reset(planned.Sub(now))
		s.mu.Unlock()
		select {
		case <-timer.C:
			for late := time.Since(planned) > asleep; late && !s.isMember(); {
				if !wait.For(s.ctx, fetchErrorPause) {
					return
				}
			}
		case <-s.wake:
		case <-s.ctx.Done():
			return
		}
	}
}

// launch hands over what is due in the window of a partition. The session is locked.
func (s *session) launch(p *part, now time.Time) {
	p.due = time.Time{}
	if p.claim.taking.Err() != nil || s.ctx.Err() != nil {
		return
	}
	for _, f := range p.records[:min(len(p.records), s.config.InFlight)] {
		if f.sent {
			continue
		}
		if f.msg == nil {
			f.msg = s.config.Read(f.record)
			f.msg.SetContext(s.config.Context(p.claim.ctx, f.record, p.claim.topic.Group))
			f.until = s.until(p, f)
		}
		switch {
		case !f.until.After(now):
			f.sent = true
			s.flights.Add(1)
			go s.fly(p, f)
		case p.due.IsZero() || f.until.Before(p.due):
			p.due = f.until
		}
	}
}

func (s *session) until(p *part, f *flight) (until time.Time) {
	safecall.Hook(s.config.Logger, "due.Stage.Until", func() { until = p.claim.topic.Stage.Until(f.msg, f.arrived) })
	return until
}

// look makes the scheduler look again, if a partition is due before it would. The session is locked.
func (s *session) look(p *part) {
	if p.due.IsZero() || !p.due.Before(s.scheduled) {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// fly hands a message over until it is acked.
func (s *session) fly(p *part, f *flight) {
	defer s.flights.Done()
	acked := s.untilAcked(p, f)
	s.mu.Lock()
	defer s.mu.Unlock()
	if acked && !s.ended {
		s.land(p, f)
	}
}

// land makes room for the next messages. The session is locked.
func (s *session) land(p *part, f *flight) {
	f.acked = true
	for len(p.records) > 0 && p.records[0].acked {
		p.bytes -= size(p.records[0].record)
		p.records[0] = nil
		p.records = p.records[1:]
	}
	s.callFetcher(p)
	s.launch(p, time.Now())
	s.look(p)
}

// untilAcked hands a nacked message over again, with backoff, and reports whether it was acked in the end.
func (s *session) untilAcked(p *part, f *flight) bool {
	of := s.config.Context(p.claim.ctx, f.record, p.claim.topic.Group)
	for pause := s.config.NackBackoff; ; pause = min(2*pause, s.config.MaxNackBackoff) {
		ctx, cancel := context.WithCancel(due.WithArrived(of, f.arrived))
		f.msg.SetContext(ctx)
		p.claim.topic.Stage.Take(f.msg)
		cancel()
		select {
		case <-f.msg.Acked():
			return true
		default:
		}
		if !wait.For(p.claim.taking, pause) {
			logging.SessionEnded.Write(s.config.Logger, nil, logging.Fields{
				logging.Topic: f.record.Topic, logging.Partition: f.record.Partition, logging.Offset: f.record.Offset,
			})
			return false
		}
		f.msg = f.msg.Copy()
	}
}
