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
	"github.com/watermill-spillway/spillway/internal/chain/deadletter"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
)

// delivery is one message on its way, in its transaction. The message's context holds it.
type delivery struct {
	t     *transaction
	db    *sql.DB // the pool that the transaction's connection is of
	topic string
	group string
	at    position
	of    *entry

	mu    sync.Mutex
	state outcome
	first int           // the savepoint before everything that the message brought about, or 0
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
	spoiled // rolledBack, and delivered again it would be absorbed
	gone    // before a handler had the message
)

func deliveryOf(ctx context.Context) *delivery {
	d, _ := chain.TransactionOf(ctx).(*delivery)
	return d
}

// end closes the delivery: from now on nothing is written in it. A message that its handler settled itself is held
// until the claim of that handler has ended.
func (d *delivery) end(how outcome, grace time.Duration) outcome {
	if how == rolledBack || !d.lockUnclaimed(grace) {
		how = rolledBack
		d.t.cut() // before the lock: a statement that is running holds it
		d.mu.Lock()
	}
	defer d.mu.Unlock()
	if how == nacked && d.first > 0 && d.t.rollbackTo(d.first) != nil {
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

// lockUnclaimed waits until no claim is open, and then holds the lock. It returns false, without the lock, if a claim
// is still open after grace.
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

// usable returns why a delivery takes nothing more, or nil.
func (d *delivery) usable() error {
	switch d.state {
	case open:
		return nil
	case acked:
		return errSettled
	default:
		return errOver
	}
}

// begin sets a savepoint and returns the *sql.Tx of it. The caller holds the lock.
func (d *delivery) begin() (tx *sql.Tx, savepoint int, err error) {
	if tx, err = d.t.db.BeginTx(context.Background(), nil); err != nil {
		return nil, 0, err
	}
	d.t.proxy.Lock()
	savepoint = d.t.savepoints
	d.t.proxy.Unlock()
	if d.first == 0 {
		d.first = savepoint
	}
	return tx, savepoint, nil
}

// Write is for what other parts write on behalf of the message. See chain.Joined.
func (d *delivery) Write(db *sql.DB, work func(*sql.Tx) error) (joined bool, err error) {
	if d.db != db {
		return false, nil
	}
	if err := d.write(work); !errors.Is(err, errSettled) {
		return true, err
	}
	return false, nil
}

func (d *delivery) write(work func(*sql.Tx) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(); err != nil {
		return err
	}
	tx, _, err := d.begin()
	if err != nil {
		return err
	}
	if err := work(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func savepointName(n int) string { return "spillway_" + strconv.Itoa(n) }

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

// deliver gives a message to the consumer, who has to take it before until, if that is not nil, and waits until it is
// settled, or its time is up.
func (s *subscription) deliver(taking context.Context, t *transaction, e *entry, until <-chan time.Time) outcome {
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
	case <-until:
		return gone
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
		eventHandlerTooSlow.Write(s.logger, nil, nil)
		return false
	}
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
		eventHandlerTooSlow.Write(s.logger, nil, nil)
		return rolledBack
	}
}

// trouble is what a message has caused.
type trouble struct {
	nacks  count
	cuts   count
	losses count // that no message is known to have caused
}

// maxLosses times maxDeliveries is how many deliveries a message has if each time its transaction is lost for another
// reason than its handler. After so many the message is to blame, because it crashes the server for example.
const maxLosses = 10

// exhausted reports whether a message was delivered as often as it may be.
func (s *subscription) exhausted(e *entry) bool {
	most := s.of.config.maxDeliveries
	return e.cuts.of(e.at) >= most || e.losses.of(e.at)/maxLosses >= most
}

// count counts what happens to one message in a row.
type count struct {
	at position
	n  int
}

func (c *count) add(at position) int {
	if c.at != at {
		*c = count{at: at}
	}
	c.n++
	return c.n
}

func (c *count) of(at position) int {
	if c.at != at {
		return 0
	}
	return c.n
}

// undone counts a message with which the transaction was rolled back, and returns the reason.
func (s *subscription) undone(t *transaction, e *entry, how outcome, shuts uint64) error {
	s.alone = s.of.config.Batch
	over, uncounted := t.fate()
	switch {
	case how == rolledBack && s.refusedFor(shuts):
	case uncounted:
		e.losses.add(e.at)
	default:
		e.cuts.add(e.at)
	}
	return over
}
