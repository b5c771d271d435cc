package wmsql

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hold/gate"
	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
)

// subscription is one consumer of a group. It runs transaction after transaction.
type subscription struct {
	of     *Subscriber
	topic  string
	out    chan *message.Message
	logger watermill.LoggerAdapter

	idle    bool      // there was nothing: the next transaction waits for something
	alone   int       // how many messages still get a transaction each, after one was rolled back
	errors  int       // in a row
	failing time.Time // since when
	ahead   bool      // the last error was ErrPositionAhead
	trouble           // of the next message in the table
	gap     gap
	order   *order // nil without an order of keys

	verified   time.Time // when the position was last compared with the table
	suspicious bool      // it was found not to be of the table, without a lock

	session session

	drain *graceful.Drain
	work  context.Context // of messages
	busy  atomic.Bool     // a handler has a message, or is about to

	valve   gate.Valve // shut by a part that finds the downstream of the handler away
	probing bool       // the transaction is the first one after the valve was shut

	first atomic.Bool // the message ends its batch, so that it is committed before the next one is delivered
}

func newSubscription(s *Subscriber, topic string) *subscription {
	return &subscription{
		of: s, topic: topic, out: make(chan *message.Message), suspicious: s.config.RestartIfAhead,
		logger: s.config.Logger.With(logging.Fields{logging.Topic: topic,
			logging.ConsumerGroup: s.config.ConsumerGroup}),
	}
}

// run consumes until ctx ends, which is the drain's Taking, and the message that is being handled is settled.
func (s *subscription) run(ctx context.Context) {
	defer close(s.out)
	defer s.session.release()
	defer s.order.forget()
	s.work = placing.With(gate.With(s.drain.Work, &s.valve), s)
	defer context.AfterFunc(ctx, func() {
		if !s.busy.Load() {
			s.drain.End()
		}
	})()
	for s.taking(ctx) {
		pause, err := s.transact(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			s.succeeds()
		} else {
			s.fails(err)
			pause = s.backoff(s.errors)
		}
		if pause > 0 && !s.pauses(ctx, pause) {
			return
		}
	}
}

// pauses waits, an idle subscription until a parked message is due. It reports false if ctx ends.
func (s *subscription) pauses(ctx context.Context, pause time.Duration) bool {
	if s.order == nil || s.order.next != nil || !s.idle && !s.order.full {
		return timing.Wait(ctx, pause)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return false
	case s.order.next = <-s.order.due:
	}
	return true
}

// fails notes that a transaction failed. Failures in a row have one line when they begin, and one when they end. One
// that only an operator can end has a line too if it follows on others.
func (s *subscription) fails(err error) {
	if s.errors++; s.errors == 1 {
		s.failing = time.Now()
	}
	ahead := errors.Is(err, ErrPositionAhead)
	if s.errors == 1 || ahead && !s.ahead {
		eventConsumeFailed.Write(s.logger, err, nil)
	}
	s.ahead = ahead
}

func (s *subscription) succeeds() {
	if s.errors > 0 {
		lasted := time.Since(s.failing).Round(time.Millisecond)
		eventConsumeContinued.Write(s.logger, nil, logging.Fields{"lasted": lasted})
	}
	s.errors = 0
}

// Placing does nothing: no message is delivered while another one is placed.
func (s *subscription) Placing(context.Context, *message.Message) {}

// PlaceFirst has the message that is being delivered committed before the next one is delivered.
func (s *subscription) PlaceFirst() { s.first.Store(true) }

// backoff doubles from nackBackoff to maxNackBackoff.
func (s *subscription) backoff(times int) time.Duration {
	pause := s.of.config.nackBackoff
	for ; times > 1 && pause < s.of.config.maxNackBackoff; times-- {
		pause *= 2
	}
	return min(pause, s.of.config.maxNackBackoff)
}

// transact runs one transaction and returns how long to wait after it.
func (s *subscription) transact(ctx context.Context) (pause time.Duration, err error) {
	if s.idle = s.idle && !s.order.isDue(); s.idle {
		if s.idle, err = s.nothing(ctx); s.idle || err != nil {
			return s.of.config.PollInterval, err
		}
	}
	life, end := s.outlive(s.work)
	defer end()
	if err := s.session.take(ctx, s.of.db); err != nil {
		return 0, err
	}
	t, err := begin(life, s.of.dialect, &s.session)
	if err != nil {
		s.session.discard()
		return 0, fmt.Errorf("wmsql: %w", err)
	}
	pause, err = s.batch(ctx, t)
	if !t.close() {
		s.session.discard()
	}
	// Idle: let others have the connection. After an error the pool judges whether it is still good for anything: a
	// server may have become read-only.
	if err != nil || pause >= s.of.config.PollInterval {
		s.session.release()
	}
	return pause, err
}

// outlive returns a context for transactions, which have time to end when ctx has: settleGrace for the handler, another
// for a claim of a handler that settles its message itself, and a third for the database. A database that does not
// answer must not hold up Close.
func (s *subscription) outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		last := time.AfterFunc(3*s.of.config.settleGrace, cancel)
		context.AfterFunc(life, func() { last.Stop() })
	})
	return life, func() { stop(); cancel() }
}

// batch consumes a few messages in t and commits it, or leaves it to be rolled back.
func (s *subscription) batch(ctx context.Context, t *transaction) (pause time.Duration, err error) {
	begun := time.Now()
	from, restarted, err := s.lock(ctx, t)
	if restarted || err != nil {
		return time.Nanosecond, err
	}
	if s.order != nil {
		if err := s.order.know(t, from); err != nil {
			return 0, err
		}
		if lane := s.order.turn(); lane != nil {
			return s.drainLane(ctx, t, lane)
		}
	}
	entries, wait, err := s.read(ctx, t, from)
	if err != nil {
		return 0, err
	}
	if len(entries) == 0 {
		if wait == 0 {
			s.idle, wait = true, s.of.config.PollInterval
		}
		return wait, nil
	}
	var last *entry
	for i := range entries {
		if i > 0 && s.ends(ctx, t, i, begun) {
			break
		}
		e := &entries[i]
		if err := s.place(e); err != nil {
			if i > 0 {
				break
			}
			return 0, err
		}
		if s.order.waits(e) {
			pause = noRoom
			break
		}
		s.order.risks()
		shuts := s.valve.Shuts()
		s.first.Store(false)
		switch outcome := s.deliver(ctx, t, e, s.until(i, begun)); outcome {
		case acked:
			last = e
			continue
		case nacked:
			if s.valve.Shuts() == shuts {
				pause = s.backoff(e.nacks.add(e.at))
			}
		case rolledBack, spoiled:
			return 0, s.undone(t, e, outcome, shuts)
		case gone:
		}
		break
	}
	if last == nil {
		return pause, nil
	}
	if err := s.acknowledge(t, last); err != nil {
		s.alone = s.of.config.Batch
		// in a batch of several the last may not be to blame, but it is not the same one twice
		if over, uncounted := t.fate(); over == nil || !uncounted {
			last.cuts.add(last.at)
		}
		return 0, err
	}
	if s.order != nil {
		s.order.known, s.order.sure = last.at, true
	}
	s.alone = max(s.alone-1, 0)
	return pause, nil
}

// ends reports whether a transaction with n messages takes no further one.
func (s *subscription) ends(taking context.Context, t *transaction, n int, begun time.Time) bool {
	return n >= s.of.config.Batch || s.alone > 0 || s.valve.IsShut() || taking.Err() != nil ||
		time.Since(begun) > s.of.config.batchTime || t.leaves() || s.first.Load()
}

// until returns when a message behind n others must have been taken: they do not wait for a consumer that takes none.
func (s *subscription) until(n int, begun time.Time) <-chan time.Time {
	if n == 0 {
		return nil
	}
	return time.After(s.of.config.batchTime - time.Since(begun))
}

// acknowledge moves the group's position behind the last message, if there is one, and commits everything.
func (s *subscription) acknowledge(t *transaction, last *entry) error {
	if err := t.intact(); err != nil {
		return fmt.Errorf("wmsql: acknowledge: %w", err)
	}
	if last == nil { // what was parked alone
		return t.commit()
	}
	query := s.of.source.acknowledge(s.topic, s.of.config.ConsumerGroup, last.row)
	if _, err := t.db.ExecContext(context.Background(), query.Query, query.Args...); err != nil {
		return fmt.Errorf("wmsql: acknowledge: %w", err)
	}
	return t.commit()
}

// taking waits until messages may be taken, and returns false if ctx ends before that. While nothing may be taken, the
// subscription has neither a transaction nor a connection.
func (s *subscription) taking(ctx context.Context) bool {
	s.probing = s.valve.IsShut()
	if !s.probing {
		return true
	}
	s.session.release()
	return s.valve.Wait(ctx)
}

// refusedFor reports whether a message that was not acked shows nothing of itself. The handler gave it back because
// what it needs is unavailable, or it was the first one after that. shuts is what valve.Shuts was when the message was
// delivered.
func (s *subscription) refusedFor(shuts uint64) bool { return s.probing || s.valve.Shuts() != shuts }
