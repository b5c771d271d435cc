package stagegroup

import (
	"context"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/logging"
)

// flight is a record that waits, or whose message is handled or placed elsewhere. All of it is guarded by the session's
// lock.
type flight struct {
	of      *part
	record  *sarama.ConsumerMessage
	size    int
	arrived time.Time

	msg    *message.Message // nil until it is in the window, and when it is acked
	cancel func()           // ends the context of msg
	until  time.Time
	paused time.Duration // before this delivery

	handled bool // and neither placed elsewhere nor settled
	first   bool // it is acked before the next one takes its place
	acked   bool
}

var (
	_ placing.Delivery = (*flight)(nil)
	_ placing.Ordered  = (*flight)(nil)
	_ placing.Aside    = (*flight)(nil)
)

// Placing lets the next message be handled while this one is placed elsewhere. This one is acked after the confirm, and
// nothing behind it is marked before that. One message at a time keeps its order, and waits.
func (f *flight) Placing(_ context.Context, msg *message.Message) {
	s := f.of.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.msg == msg && f.handled && !f.first && s.config.InFlight > 1 && s.config.MaxPlacing > 0 {
		s.leaveWindow(f)
	}
}

// Aside reports whether nothing waits for the message to be placed.
func (f *flight) Aside() bool {
	f.of.session.mu.Lock()
	defer f.of.session.mu.Unlock()
	return !f.handled
}

// PlaceFirst lets the next message wait until this one is acked.
func (f *flight) PlaceFirst() {
	f.of.session.mu.Lock()
	defer f.of.session.mu.Unlock()
	f.first = true
}

// fly hands a message over until it is settled.
func (s *session) fly(f *flight, msg *message.Message) {
	defer s.flights.Done()
	defer s.settle(f, msg) // even if the handler ends the goroutine
	f.of.claim.topic.Stage.Take(msg)
}

// settle makes room for the next messages. A message that is not acked is handed over again, with backoff.
func (s *session) settle(f *flight, msg *message.Message) {
	f.cancel()
	acked := false
	select {
	case <-msg.Acked():
		acked = true
	default:
		if f.of.claim.taking.Err() != nil {
			logging.SessionEnded.Write(s.config.Logger, nil, logging.Fields{
				logging.Topic: f.record.Topic, logging.Partition: f.record.Partition, logging.Offset: f.record.Offset,
			})
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
	case acked:
		s.land(f)
	default:
		f.paused = min(max(2*f.paused, s.config.NackBackoff), s.config.MaxNackBackoff)
		f.until = time.Now().Add(f.paused)
		f.msg = msg.Copy()
		s.attempt(f)
		f.of.waiting = append(f.of.waiting, f)
		s.leaveWindow(f)
	}
}

// land notes an ack. The session is locked.
func (s *session) land(f *flight) {
	p := f.of
	f.acked, f.record, f.msg, f.cancel = true, nil, nil, nil // those in front may take long
	p.held -= f.size
	for len(p.records) > 0 && p.records[0].acked {
		p.records[0] = nil
		p.records = p.records[1:]
		p.taken--
	}
	s.leaveWindow(f)
}

// leaveWindow makes room for the next message. The session is locked.
func (s *session) leaveWindow(f *flight) {
	p := f.of
	if f.handled {
		f.handled = false
		p.running--
	}
	s.launch(p, time.Now())
	s.callFetcher(p)
	s.look(p)
}
