package postgresclaim

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/idempotency/internal/claims"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/internal/sqlstore/pipelined"
	"github.com/watermill-spillway/spillway/internal/sqlstore/sqlproxy"
)

// lateness is the state of a claim whose key is entered with the handler's first statement.
type lateness struct {
	message context.Context // the message's
	acked   <-chan struct{} // closed when its end is none: who acks a message ends its context
	begun   bool            // something was sent, perhaps
	entered bool            // the key, and the handler's statements run
	refused error           // why they do not: claims.ErrApplied, keytable.ErrHeld, or what went wrong
}

// parting is how long the key, and the statement that takes it along, may take when the message has gone away. A
// handler that goes on with a context of its own is to end as it would with a key that was entered before it began.
const parting = time.Second

// BeginOptimistic returns a claim whose key is entered with the handler's first statement. That waits for others that
// hold the key until its own context ends, or ctx, unless ctx ended because the message was acked.
func (s *Store) BeginOptimistic(ctx context.Context, row keytable.Row, acked <-chan struct{}) (*Claim, error) {
	conn, err := s.DB.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("postgres: take a connection: %w", err)
	}
	c := &Claim{row: row, store: s, conn: conn, late: &lateness{message: ctx, acked: acked}}
	if c.proxy, err = s.proxies.Begin(ctx, conn, c); err != nil {
		return nil, errors.Join(fmt.Errorf("postgres: begin: %w", err), conn.Close())
	}
	return c, nil
}

// carries reports whether a statement can take the key along. What it does is rolled back where the key is there, so it
// must be one whose work can be: a query may take a lock of the session.
func (c *Claim) carries(text string, args []driver.NamedValue) bool {
	return c.late != nil && !c.late.entered && c.late.refused == nil && len(args) > 0 &&
		sqlproxy.Plain(text, "INSERT", "UPDATE", "DELETE", "MERGE", "WITH")
}

// Carry is called by the proxy. The first of the handler's statements that can takes the key along: BEGIN, the key and
// the statement are one round trip. Where the key turns out to be there, the statement is rolled back with all else.
func (c *Claim) Carry(ctx context.Context, text string,
	args []driver.NamedValue) (result driver.Result, carried bool, err error) {
	if !c.carries(text, args) {
		return nil, false, nil
	}
	values, err := sqlproxy.Positional(args)
	if err != nil {
		return nil, false, nil
	}
	first := pipelined.Statement{Text: text, Args: make([]any, len(values))}
	for i, v := range values {
		first.Args[i] = v
	}
	err = c.guardInside(func() error {
		waiting, stop := c.late.waiting(ctx)
		defer stop()
		c.late.begun = true
		changed, err := c.send(waiting, claims.Driver(c.conn), first)
		switch {
		case err == driver.ErrSkip:
			return nil // it goes by itself, after the key
		case err == nil && changed[1] > 0:
			result, carried = driver.RowsAffected(changed[2]), true
		case err == nil:
			if err = c.resolve(waiting); err == nil && c.recorded == nil { // taken over from a lease
				result, carried = driver.RowsAffected(changed[2]), true
			}
		case waiting.Err() == nil: // of the key, the statement, its arguments, the connection: alone each says what it is
			err = c.enterAnew(waiting, err)
		}
		return c.enteredLate(ctx, err)
	})
	return result, carried && err == nil, err
}

// enterAnew enters the key alone, after all that was sent with it came to nothing because of was. The connection may be
// lost: pgx closes it for an argument that has no form in the protocol.
func (c *Claim) enterAnew(ctx context.Context, was error) error {
	entered, err := c.beginInText(ctx, claims.Driver(c.conn), true)
	if err != nil && postgres.State(err) == "" && ctx.Err() == nil {
		claims.Discard(c.conn)
		conn, failed := c.store.DB.Conn(ctx)
		if failed != nil && postgres.State(was) != "" {
			return was
		}
		if failed != nil {
			return failed
		}
		c.conn = conn
		c.proxy.Use(conn)
		entered, err = c.beginInText(ctx, claims.Driver(conn), false)
	}
	if err != nil || entered {
		return err
	}
	return c.resolve(ctx)
}

// waiting is the context of a statement for as long as it waits for the key: soon after the message's it ends, too.
func (l *lateness) waiting(statement context.Context) (ctx context.Context, stop func()) {
	if l.message.Done() == nil || l.message.Done() == statement.Done() {
		return statement, func() {}
	}
	ctx, cancel := context.WithCancel(statement)
	watch := context.AfterFunc(l.message, func() {
		patience := time.NewTimer(parting)
		defer patience.Stop()
		select {
		case <-l.acked:
		case <-ctx.Done():
		case <-patience.C:
			cancel()
		}
	})
	return ctx, func() { watch(); cancel() }
}

// gone is how the message went away, if it has.
func (l *lateness) gone() error {
	select {
	case <-l.acked:
		return nil
	default:
		return l.message.Err()
	}
}

// Enter is called by the proxy. It enters the key alone, where nothing can carry it.
func (c *Claim) Enter(ctx context.Context) error {
	if c.late == nil || c.late.entered {
		return nil
	}
	if c.late.refused != nil {
		return c.late.refused
	}
	return c.guardInside(func() error {
		waiting, stop := c.late.waiting(ctx)
		defer stop()
		c.late.begun = true
		return c.enteredLate(ctx, c.enterInTime(waiting))
	})
}

// enteredLate notes how it went to enter the key, and returns what the handler's statements are refused with.
func (c *Claim) enteredLate(statement context.Context, err error) error {
	ended := statement.Err()
	if ended == nil {
		ended = c.late.gone()
	}
	switch {
	case err != nil && !errors.Is(err, keytable.ErrHeld) && postgres.State(err) == "" && ended != nil:
		err = fmt.Errorf("postgres: wait for the key: %w", ended)
	case err != nil:
		err = fmt.Errorf("postgres: begin, and enter the key: %w", err)
	case c.recorded != nil:
		err = claims.ErrApplied
	}
	c.late.entered, c.late.refused = err == nil, err
	// a statement that came along holds locks: let them go
	if errors.Is(err, claims.ErrApplied) || errors.Is(err, keytable.ErrHeld) {
		if _, failed := c.conn.ExecContext(context.Background(), `ROLLBACK`); failed != nil {
			claims.Discard(c.conn)
		}
		c.late.begun = false
	}
	return err
}

// Settled ends the handler's part. Where nothing has entered the key, that is done now, for a handler that failed too:
// its message may have been applied before. So it is where a statement did not wait for it to the end. The error is why
// the message is not this claim's; it is nil where the key was applied, and then Recorded is not.
func (c *Claim) Settled(ctx context.Context, failed bool) error {
	left := c.proxy.Stop()
	if left.Reading {
		return nil // Commit says so
	}
	refused := c.late.refused
	switch {
	case !c.late.entered && refused == nil:
		_ = c.Enter(context.WithoutCancel(ctx))
	case failed && refused != nil && ctx.Err() == nil && isEnd(refused): // the statement's own context ended
		_ = c.guardInside(func() error { return c.enteredLate(ctx, c.enterAnew(ctx, refused)) })
	}
	if errors.Is(c.late.refused, claims.ErrApplied) {
		return nil
	}
	return c.late.refused
}

func isEnd(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// guardInside is guard for what runs inside of a statement of the proxy's, which must not wait for itself.
func (c *Claim) guardInside(work func() error) error {
	return claims.Guard(c.conn, func() {
		c.ended = true
		go c.proxy.Close()
	}, work)
}
