package wmsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/poison"
)

// delivery is one message on its way, in its transaction. The message's context holds it.
type delivery struct {
	t     *transaction
	db    *sql.DB // the pool that the transaction's connection is of
	topic string
	group string
	at    position

	mu    sync.Mutex
	state outcome
	first string        // the savepoint before everything that the message brought about
	busy  chan struct{} // closed when the claim that is open has ended; nil without a claim
	// spoiled says that an attempt failed whose key is in the database all the same: delivered again, the message would
	// be absorbed as if it had succeeded.
	spoiled atomic.Bool
}

// outcome is how a delivery ends.
type outcome int

const (
	open outcome = iota
	acked
	nacked
	rolledBack
	gone // before a handler had the message
)

func deliveryOf(ctx context.Context) *delivery {
	d, _ := chain.TransactionOf(ctx).(*delivery)
	return d
}

// deliver gives a message to the consumer and waits until it is settled, or its time is up.
func (s *subscription) deliver(ctx context.Context, t *transaction, e *entry) outcome {
	d := &delivery{t: t, db: s.db, topic: s.topic, group: s.config.ConsumerGroup, at: e.at}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.whenOver(cancel)
	defer t.whenOver(nil)
	if s.config.AckDeadline > 0 {
		var done context.CancelFunc
		ctx, done = context.WithTimeout(ctx, s.config.AckDeadline)
		defer done()
	}
	msg := e.row.Msg
	msg.SetContext(chain.WithTransaction(ctx, d))
	if s.exhausted(e.at) {
		poison.MarkMaxDeliveries(msg, fmt.Errorf("delivered %d times, and each time the handler overran the AckDeadline of %s, or interrupted or ended the "+
			"transaction, or the database refused to commit it or lost it", s.cuts.of(e.at)+s.losses.of(e.at), s.config.AckDeadline))
	}
	if ctx.Err() != nil { // select would choose at random
		return gone
	}
	select {
	case s.out <- msg:
	case <-ctx.Done():
		return gone
	}
	how := s.settled(ctx, msg, d)
	late := errors.Is(ctx.Err(), context.DeadlineExceeded)
	if how = d.end(how, s.config.SettleGrace); how == nacked && late {
		s.cuts.add(e.at)
	}
	if how == rolledBack && d.spoiled.Load() { // so it is set aside, and seen
		s.cuts = count{d.at, s.config.MaxDeliveries - 1}
	}
	return how
}

// consumed runs the query of an adapter of the user's own before a message.
func (s *subscription) consumed(ctx context.Context, t *transaction, e *entry) error {
	if s.source != nil {
		return nil
	}
	query := s.config.Offsets.ConsumedMessageQuery(s.topic, e.row, s.config.ConsumerGroup, nil)
	if query.IsZero() {
		return nil
	}
	_, err := t.db.ExecContext(ctx, query.Query, query.Args...)
	return err
}

// settled waits for the handler, for SettleGrace longer than the message's context lasts.
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
	grace := time.NewTimer(s.config.SettleGrace)
	defer grace.Stop()
	select {
	case <-msg.Acked():
		return acked
	case <-msg.Nacked():
		return nacked
	case <-grace.C:
		s.logger.Info("A handler did not settle its message in time: its transaction is rolled back, and its messages come again", nil)
		return rolledBack
	}
}

// end closes the delivery: from now on nothing is written in it. A message that its handler settled itself is held until
// the claim of that handler has ended.
func (d *delivery) end(how outcome, grace time.Duration) outcome {
	if how == rolledBack || !d.lockUnclaimed(grace) {
		how = rolledBack
		d.t.cut() // before the lock: a statement that is running holds it
		d.mu.Lock()
	}
	defer d.mu.Unlock()
	if how == nacked && d.first != "" && d.t.rollbackTo(d.first) != nil {
		how = rolledBack
	}
	if how == acked && d.t.failed() != nil {
		d.t.cut()
	}
	if over, _ := d.t.fate(); over != nil {
		how = rolledBack
	}
	d.state = how
	return how
}

// lockUnclaimed waits until no claim is open, and then holds the lock. It returns false, without the lock, if a claim is
// still open after grace.
func (d *delivery) lockUnclaimed(grace time.Duration) bool {
	var over <-chan time.Time
	for {
		d.mu.Lock()
		busy := d.busy
		if busy == nil {
			return true
		}
		select {
		case <-busy:
			return true
		default:
		}
		d.mu.Unlock()
		if over == nil {
			over = time.After(grace)
		}
		select {
		case <-busy:
		case <-over:
			return false
		}
	}
}

// begin sets a savepoint and returns the *sql.Tx of it. The caller holds the lock.
func (d *delivery) begin() (*sql.Tx, string, error) {
	tx, err := d.t.db.BeginTx(context.Background(), nil)
	if err != nil {
		return nil, "", err
	}
	d.t.proxy.Lock()
	name := savepointName(d.t.savepoints)
	d.t.proxy.Unlock()
	if d.first == "" {
		d.first = name
	}
	return tx, name, nil
}

func savepointName(n int) string { return "spillway_" + strconv.Itoa(n) }
