package idempotency

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/keys"
	"github.com/watermill-spillway/spillway/internal/pipelined"
	"github.com/watermill-spillway/spillway/internal/postgres"
	"github.com/watermill-spillway/spillway/internal/shadow"
)

// lateness is the state of a claim whose key is entered with the handler's first statement.
type lateness struct {
	wait    context.Context // the message's
	acked   func() bool     // whether its end is none: who acks a message ends its context
	begun   bool            // something was sent
	entered bool            // the key, and the handler's statements run
	refused error           // why they do not: ErrApplied, ErrHeld, or what went wrong
}

func (s *PostgresStore) pipelines() bool { return s != nil && s.send != nil }

func (s *PostgresStore) claimLate(ctx context.Context, entry Entry, acked func() bool) (lateClaim, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("postgres: take a connection: %w", err)
	}
	c := &postgresClaim{key: entry.Key, row: entry.row(), store: s, conn: conn, late: &lateness{wait: ctx, acked: acked}}
	if c.shadow, err = s.shadows.Begin(ctx, conn, c); err != nil {
		return nil, errors.Join(fmt.Errorf("postgres: begin: %w", err), conn.Close())
	}
	return c, nil
}

// Carry is for the shadow. The first of the handler's statements that can takes the key along: BEGIN, the key and the
// statement are one round trip. Where the key turns out to be there, the statement is rolled back with all else.
func (c *postgresClaim) Carry(ctx context.Context, text string, args []driver.NamedValue) (result driver.Result, carried bool, err error) {
	if c.late == nil || c.late.entered || c.late.refused != nil || len(args) == 0 || !plainPostgres(text) {
		return nil, false, nil
	}
	values, err := shadow.Positional(args)
	if err != nil {
		return nil, false, nil
	}
	first := pipelined.Statement{Text: text, Args: make([]any, len(values))}
	for i, v := range values {
		first.Args[i] = v
	}
	statement := ctx
	ctx, stop := c.late.waiting(ctx)
	defer stop()
	own := beneath(c.conn)
	changed, err := c.send(ctx, own, keys.EnteringPostgres(c.row, c.hopeful()), first)
	switch {
	case err == driver.ErrSkip:
		return nil, false, nil // it goes by itself, after the key
	case err == nil && changed[1] > 0:
	case err == nil:
		err = c.resolve(ctx)
	case ctx.Err() == nil: // of the key, of the statement, of its arguments, of the connection: alone each says what it is
		return nil, false, c.enteredLate(statement, c.enterAnew(ctx))
	}
	if err := c.enteredLate(statement, err); err != nil {
		return nil, false, err
	}
	return driver.RowsAffected(changed[2]), true, nil
}

// enterAnew enters the key alone, after all that was sent with it has come to nothing. The connection may be lost: pgx closes
// it for an argument that has no form in the protocol.
func (c *postgresClaim) enterAnew(ctx context.Context) error {
	careful := keys.EnteringPostgres(c.row, false)
	entered, err := c.beginInText(ctx, beneath(c.conn), careful, true)
	if err != nil && postgres.State(err) == "" && ctx.Err() == nil {
		discard(c.conn)
		conn, failed := c.store.db.Conn(ctx)
		if failed != nil {
			return failed
		}
		c.conn = conn
		c.shadow.Use(conn)
		entered, err = c.beginInText(ctx, beneath(conn), careful, false)
	}
	if err != nil || entered {
		return err
	}
	return c.resolve(ctx)
}

// waiting is the context of a statement for as long as it waits for the key: it ends with the message's, too.
func (l *lateness) waiting(statement context.Context) (ctx context.Context, stop func()) {
	if l.wait.Done() == nil || l.wait.Done() == statement.Done() {
		return statement, func() {}
	}
	ctx, cancel := context.WithCancel(statement)
	watch := context.AfterFunc(l.wait, func() {
		if !l.acked() {
			cancel()
		}
	})
	return ctx, func() { watch(); cancel() }
}

// enterLate enters the key alone, where nothing can carry it.
func (c *postgresClaim) enterLate(ctx context.Context) error {
	if c.late == nil || c.late.entered {
		return nil
	}
	if c.late.refused != nil {
		return c.late.refused
	}
	waiting, stop := c.late.waiting(ctx)
	defer stop()
	return c.enteredLate(ctx, c.enterInTime(waiting))
}

// enteredLate notes how it went to enter the key, and returns what the handler's statements are refused with.
func (c *postgresClaim) enteredLate(ctx context.Context, err error) error {
	c.late.begun = true
	ended := ctx.Err()
	if ended == nil && !c.late.acked() {
		ended = c.late.wait.Err()
	}
	switch {
	case err != nil && !errors.Is(err, ErrHeld) && ended != nil:
		err = fmt.Errorf("postgres: wait for the key: %w", ended)
	case err != nil:
		err = fmt.Errorf("postgres: begin, and enter the key: %w", err)
	case c.recorded != nil:
		err = ErrApplied
	}
	c.late.entered, c.late.refused = err == nil, err
	return err
}

// settled ends the handler's part. Where nothing has entered the key, that is done now, for a handler that failed too: its
// message may have been applied before. The error is why the message is not this claim's. It is nil where the key was
// applied, and then Recorded is not; and where a handler failed on its own.
func (c *postgresClaim) settled(ctx context.Context, failed bool) error {
	left, before := c.shadow.Stop(), c.late.refused
	if !left.Reading && !c.late.entered && before == nil {
		_ = c.guard(func() error { return c.enterLate(ctx) })
	}
	refused := c.late.refused
	if errors.Is(refused, ErrApplied) || failed && before == nil && !errors.Is(refused, ErrHeld) {
		return nil
	}
	return refused
}
