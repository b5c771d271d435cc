package wmsql

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"

	"github.com/watermill-spillway/spillway/internal/order/sequence"
)

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
		n++
		o.risks()
		s.first.Store(false)
		e := s.parked(row)
		shuts := s.valve.Shuts()
		switch how := s.deliver(taking, t, e); how {
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
