package wmsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/order/lanes"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
)

// order keeps the order of keys in a subscription, as package sequence says. What is parked is read and written in the
// transaction that has the group's position locked.
//
// A process that parks a message moves the position behind it in the same transaction. So the position is the version
// of what is parked: while it is where this process left it, there is nothing to look for. Others can only have removed
// rows.
type order struct {
	*sequence.Ordering
	sub    *Subscriber
	source parked.Source

	owner *sequence.Owner
	known position // of the group, when the owner knew all rows
	sure  bool     // false if a transaction may have ended otherwise than the owner thinks

	due   chan *sequence.Lane
	next  *sequence.Lane // taken out of due
	live  bool           // it is the turn of the live messages
	full  bool           // no further message can be parked: the group waits
	since time.Time      // when the owner looked
	stop  context.CancelFunc
	ended sync.WaitGroup
	heads map[int64]*trouble // of parked messages, by their offset
}

// takeOrder returns nil if no channel asks for an order of keys. It refuses what would break it.
func (s *Subscriber) takeOrder(ctx context.Context, topic string) (*order, error) {
	o := sequence.Take(ctx)
	switch {
	case o == nil:
		return nil, nil
	case s.config.Key == nil:
		return nil, errors.New("wmsql: Config.Ordered needs SubscriberConfig.Key: a table has no column of keys. Set Key to a " +
			"function that returns the key of a message, such as msg.Metadata.Get(\"customer\")")
	case !o.Store.Joins(s.db):
		return nil, errors.New("wmsql: Config.Ordered needs Config.Idempotency of wmsql.Join on the *sql.DB of this subscriber: " +
			"keys, effects and parked messages must commit with the position")
	}
	placing.Lanes.Store(true)
	return &order{Ordering: o, sub: s, source: parked.Source{Group: s.config.ConsumerGroup, Topic: topic},
		heads: map[int64]*trouble{}}, nil
}

// know looks for what is parked unless that is known. The transaction has locked the position, which is at.
func (o *order) know(t *transaction, at position) error {
	if o.sure && o.known == at {
		return nil
	}
	o.forget()
	owner := o.Own(o.source)
	ctx, end := o.within(t)
	defer end()
	if !owner.Load(ctx) {
		return fmt.Errorf("wmsql: look for parked messages: %w", context.Cause(ctx))
	}
	search, stop := context.WithCancel(context.Background()) // not in the transaction
	o.stop = stop
	o.owner, o.known, o.sure, o.since, o.due = owner, at, true, time.Now(), make(chan *sequence.Lane, 1)
	due := o.due
	o.ended.Go(func() {
		owner.DrainAll(search, func(lane *sequence.Lane) error {
			select {
			case due <- lane:
				return nil
			case <-search.Done():
				return search.Err()
			}
		})
	})
	return nil
}

// risks notes that the transaction may end otherwise than the owner thinks.
func (o *order) risks() {
	if o != nil {
		o.sure = false
	}
}

// forget ends the search for lanes that are due.
func (o *order) forget() {
	if o != nil && o.stop != nil {
		o.stop()
		o.ended.Wait()
		o.stop, o.owner, o.sure, o.due, o.next = nil, nil, false, nil, nil
	}
}

// isStale reports whether the group's position, read without a lock, is not where this process left it.
func (o *order) isStale(at position) bool { return o != nil && !(o.sure && o.known == at) }

// isDue reports whether a lane waits for its turn.
func (o *order) isDue() bool { return o != nil && (o.next != nil || len(o.due) > 0) }

// turn returns a lane that is due, or nil. Lanes and live messages take turns.
func (o *order) turn() (lane *sequence.Lane) {
	if o.live {
		o.live = false
		return nil
	}
	if lane, o.next = o.next, nil; lane == nil {
		select {
		case lane = <-o.due:
		default:
			lane, _ = o.owner.Due()
		}
	}
	o.live = lane != nil
	return lane
}

// keyOf returns what stands for the key of a message.
func (o *order) keyOf(e *entry) (key, lane []byte, err error) {
	if e.unreadable {
		return nil, nil, nil
	}
	text, err := lanes.KeyFrom(o.sub.config.Key, e.row.Msg)
	if err != nil {
		return nil, nil, fmt.Errorf("wmsql: %q waits: %w", o.source.Topic, err)
	}
	if text != "" {
		key = []byte(text)
		lane = parked.LaneOf(key)
	}
	return key, lane, nil
}

// place says where a live message stands in the order of its key.
func (s *subscription) place(e *entry) error {
	o := s.order
	if o == nil {
		return nil
	}
	key, lane, err := o.keyOf(e)
	if err == nil {
		e.line = &line{sub: s, order: sequence.Delivery{Owner: o.owner, Lane: lane, RecordKey: key,
			Position: e.at.offset,
			SentAt:   time.Now(), Appends: o.owner.Waits(lane)}}
	}
	return err
}

// noRoom is how long the group waits before it counts again what is parked.
const noRoom = time.Second

// waits reports whether a live message must wait until there is room to park it.
func (o *order) waits(e *entry) bool {
	if o == nil {
		return false
	}
	full := o.owner.IsFull(e.line.order.Lane)
	if full != o.full {
		o.full = full
		o.owner.SayFull(full)
	}
	if full && time.Since(o.since) > noRoom { // others may remove rows
		o.sure = false
	}
	return full
}

// line is a message in the order of its key, on its way.
type line struct {
	placing.Chains
	sub   *subscription
	order sequence.Delivery
}

// Sequence is for chain.Call.
func (l *line) Sequence() chain.Sequence { return &l.order }

// Placing does nothing, as that of the subscription.
func (l *line) Placing(context.Context, *message.Message) {}

// PlaceFirst is that of the subscription.
func (l *line) PlaceFirst() { l.sub.PlaceFirst() }

// within returns a context in which what is parked is read and written in the transaction. It ends with the first
// error: then the transaction must not commit. Its cause is that error.
func (o *order) within(t *transaction) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(t.ctx)
	return chain.WithTransaction(ctx, &inside{t, o.sub, cancel}), func() { cancel(nil) }
}

// inside is a chain.Joined for the subscription itself, without savepoints.
type inside struct {
	t      *transaction
	sub    *Subscriber
	failed context.CancelCauseFunc
}

// Write is for package sequence.
func (i *inside) Write(db *sql.DB, work func(*sql.Tx) error) (joined bool, err error) {
	if db != i.sub.db {
		return false, nil
	}
	i.t.barely(true)
	defer i.t.barely(false)
	tx, err := i.t.db.BeginTx(context.Background(), nil)
	if err == nil {
		err = work(tx)
		_ = tx.Commit()
	}
	if err != nil {
		i.failed(err)
	}
	return true, err
}

// mostHeads bounds what is remembered of parked messages that cause trouble.
const mostHeads = 1000

// parked is the entry of a parked message. It has a position that no message of the table has.
func (s *subscription) parked(row *sequence.Row) *entry {
	if len(s.order.heads) > mostHeads {
		clear(s.order.heads)
	}
	of := s.order.heads[row.Position]
	if of == nil {
		of = &trouble{}
	}
	return &entry{row: wsql.Row{Msg: row.Msg, Offset: row.Position}, at: position{-1, row.Position}, trouble: of,
		line: &line{sub: s}, parked: row}
}

// drainLane delivers what is parked in a lane: a few messages in one transaction, with their rows deleted in it.
func (s *subscription) drainLane(taking context.Context, t *transaction, lane *sequence.Lane) (time.Duration, error) {
	o, begun := s.order, time.Now()
	ctx, end := o.within(t)
	defer end()
	n, acks, left, pause := 0, 0, false, time.Duration(0)
	var failed error
	o.owner.Drain(ctx, ctx, lane, func(row *sequence.Row) (passed, again bool) {
		left = true
		if n > 0 && s.ends(taking, t, n, begun) {
			return false, false
		}
		until := s.until(n, begun)
		n++
		o.risks()
		s.first.Store(false)
		e := s.parked(row)
		shuts := s.valve.Shuts()
		switch how := s.deliver(taking, t, e, until); how {
		case acked:
			delete(o.heads, row.Position)
			acks, left = acks+1, false
			return !e.line.order.Again, e.line.order.Again
		case nacked:
			o.heads[row.Position] = e.trouble
			if s.valve.Shuts() == shuts {
				pause = s.backoff(e.nacks.add(e.at))
			}
		case rolledBack, spoiled:
			o.heads[row.Position] = e.trouble
			failed = s.undone(t, e, how, shuts)
		}
		return false, false
	})
	switch {
	case failed != nil:
		return 0, failed
	case ctx.Err() != nil:
		o.sure = false
		return 0, fmt.Errorf("wmsql: drain parked messages: %w", context.Cause(ctx))
	case left:
		o.owner.Later(lane, time.Now().Add(pause))
	}
	if n == 0 {
		return 0, nil
	}
	if err := s.acknowledge(t, nil); err != nil {
		s.alone = s.of.config.Batch
		return 0, err
	}
	o.sure, s.alone = true, max(s.alone-acks, 0)
	return 0, nil
}
