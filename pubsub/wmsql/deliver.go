package wmsql

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/deadletter"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/logging"
)

// handing notes that a handler gets a message. The function returned ends the drain if the subscription has ended
// meanwhile: nothing is left but to commit.
func (s *subscription) handing(taking context.Context) func() {
	s.busy.Store(true)
	return func() {
		s.busy.Store(false)
		if taking.Err() != nil {
			s.drain.End()
		}
	}
}

// deliver gives a message to the consumer and waits until it is settled, or its time is up.
func (s *subscription) deliver(taking context.Context, t *transaction, e *entry) outcome {
	defer s.handing(taking)()
	d := &delivery{t: t, db: s.of.db, topic: s.topic, group: s.of.config.ConsumerGroup, at: e.at, of: e}
	ctx, cancel := context.WithCancel(s.work)
	defer cancel()
	t.whenOver(cancel)
	defer t.whenOver(nil)
	if s.of.config.AckDeadline > 0 {
		var done context.CancelFunc
		ctx, done = context.WithTimeout(ctx, s.of.config.AckDeadline)
		defer done()
	}
	msg := e.row.Msg
	if e.line != nil {
		if e.parked != nil {
			e.line.order, ctx = s.order.owner.Parked(ctx, e.parked)
		}
		ctx = placing.With(ctx, e.line)
		e.line.Deliver(msg)
	}
	msg.SetContext(chain.WithTransaction(ctx, d))
	if s.exhausted(e) {
		deadletter.MarkExhausted(msg,
			fmt.Errorf("delivered %d times, and each time the handler overran the AckDeadline of %s, or interrupted or ended "+
				"the transaction, or the database refused to commit it or lost it", e.cuts.of(e.at)+e.losses.of(e.at),
				s.of.config.AckDeadline))
	}
	if taking.Err() != nil || ctx.Err() != nil { // select would choose at random
		return gone
	}
	select {
	case s.out <- msg:
	case <-taking.Done():
		return gone
	case <-ctx.Done():
		return gone
	}
	shuts := s.valve.Shuts()
	how := s.settled(ctx, msg, d)
	if how != rolledBack && e.line != nil && !s.returned(ctx, e.line) {
		how = rolledBack
	}
	late := errors.Is(ctx.Err(), context.DeadlineExceeded)
	if how = d.end(how, s.of.config.settleGrace); how == nacked && late && !s.refusedFor(shuts) {
		e.cuts.add(e.at)
	}
	if how == rolledBack && d.spoiled.Load() { // so it is set aside, and seen
		e.cuts = count{e.at, s.of.config.maxDeliveries - 1}
		return spoiled
	}
	return how
}

// returned waits until the chain has returned, for settleGrace longer than the message's context lasts: a handler may
// have settled its message itself.
func (s *subscription) returned(ctx context.Context, l *line) bool {
	select {
	case <-l.Returned():
		return true
	case <-ctx.Done():
	}
	grace := time.NewTimer(s.of.config.settleGrace)
	defer grace.Stop()
	select {
	case <-l.Returned():
		return true
	case <-grace.C:
		logging.HandlerTooSlow.Write(s.logger, nil, nil)
		return false
	}
}

// consumed runs the query of an adapter of the user's own before a message.
func (s *subscription) consumed(ctx context.Context, t *transaction, e *entry) error {
	if s.of.source != nil {
		return nil
	}
	query := s.of.dialect.offsets.ConsumedMessageQuery(s.topic, e.row, s.of.config.ConsumerGroup, nil)
	if query.IsZero() {
		return nil
	}
	_, err := t.db.ExecContext(ctx, query.Query, query.Args...)
	return err
}

// settled waits for the handler, for settleGrace longer than the message's context lasts.
func (s *subscription) settled(ctx context.Context, msg *message.Message, d *delivery) outcome {
	ticks := time.NewTicker(watchInterval)
	defer ticks.Stop()
	for ctx.Err() == nil {
		select {
		case <-msg.Acked():
			return acked
		case <-msg.Nacked():
			return nacked
		case <-ticks.C:
			d.t.watch()
		case <-ctx.Done():
		}
	}
	grace := time.NewTimer(s.of.config.settleGrace)
	defer grace.Stop()
	select {
	case <-msg.Acked():
		return acked
	case <-msg.Nacked():
		return nacked
	case <-grace.C:
	}
	select { // of two channels that are ready, select takes any
	case <-msg.Acked():
		return acked
	case <-msg.Nacked():
		return nacked
	default:
		logging.HandlerTooSlow.Write(s.logger, nil, nil)
		return rolledBack
	}
}
