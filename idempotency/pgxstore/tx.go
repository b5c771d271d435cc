package pgxstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/watermill-spillway/spillway/idempotency/internal/claims"
	"github.com/watermill-spillway/spillway/internal/chain"
)

// Tx returns the transaction that holds the key of the message with this context, as pgx has it, or nil. See
// idempotency.Tx. Its Commit and Rollback end nothing: the receiver ends the transaction. Begin sets a savepoint.
func Tx(ctx context.Context) pgx.Tx {
	s, ok := chain.ClaimOf(ctx).(interface{ Claim() any })
	if !ok {
		return nil
	}
	switch c := s.Claim().(type) {
	case interface{ Pgx() pgx.Tx }:
		return c.Pgx()
	case interface{ Conn() *sql.Conn }: // of a key that was taken over from a lease
		if own, ok := claims.Driver(c.Conn()).(*stdlib.Conn); ok {
			return &tx{on: &state{conn: own.Conn()}}
		}
	}
	return nil
}

// tx is the transaction as a handler sees it, or a savepoint of it. One statement runs at a time, and none when the
// claim has ended.
type tx struct {
	on        *state
	savepoint string // or "" for the transaction itself
	done      bool
}

// state is what the transaction and its savepoints share.
type state struct {
	conn       *pgx.Conn
	mu         sync.Mutex
	ended      bool
	byHandler  bool // it has called Commit or Rollback
	savepoints int
}

var (
	errEnds = fmt.Errorf("pgxstore: the transaction is the receiver's: return nil for a commit and an error for a "+
		"rollback: %w", sql.ErrTxDone)
	errOver = fmt.Errorf("pgxstore: the transaction has ended: %w", sql.ErrTxDone)
)

// use runs work, or returns an error if the claim has ended.
func (s *state) use(work func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errOver
	}
	work()
	return nil
}

// Begin sets a savepoint.
func (t *tx) Begin(ctx context.Context) (pgx.Tx, error) {
	inner := &tx{on: t.on}
	if err := t.on.use(func() {
		t.on.savepoints++
		inner.savepoint = "handler_" + strconv.Itoa(t.on.savepoints)
	}); err != nil {
		return nil, err
	}
	if _, err := t.Exec(ctx, `SAVEPOINT `+inner.savepoint); err != nil {
		return nil, err
	}
	return inner, nil
}

// Commit releases a savepoint. The transaction itself is the receiver's, and Commit is an error.
func (t *tx) Commit(ctx context.Context) error { return t.end(ctx, `RELEASE SAVEPOINT `) }

// Rollback rolls back to a savepoint. The transaction itself is the receiver's, and Rollback is an error.
func (t *tx) Rollback(ctx context.Context) error { return t.end(ctx, `ROLLBACK TO SAVEPOINT `) }

func (t *tx) end(ctx context.Context, statement string) error {
	if t.done {
		return pgx.ErrTxClosed
	}
	t.done = true
	if t.savepoint == "" {
		_ = t.on.use(func() { t.on.byHandler = true })
		return errEnds
	}
	_, err := t.Exec(ctx, statement+t.savepoint)
	return err
}

// Exec is that of the connection, as all that follow.
func (t *tx) Exec(ctx context.Context, text string, args ...any) (tag pgconn.CommandTag, err error) {
	over := t.on.use(func() { tag, err = t.on.conn.Exec(ctx, text, args...) })
	return tag, errors.Join(over, err)
}

func (t *tx) Query(ctx context.Context, text string, args ...any) (rows pgx.Rows, err error) {
	if over := t.on.use(func() { rows, err = t.on.conn.Query(ctx, text, args...) }); over != nil {
		return failedRows{err: over}, over
	}
	return rows, err
}

func (t *tx) QueryRow(ctx context.Context, text string, args ...any) (row pgx.Row) {
	if over := t.on.use(func() { row = t.on.conn.QueryRow(ctx, text, args...) }); over != nil {
		return failedRows{err: over}
	}
	return row
}

func (t *tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string,
	from pgx.CopyFromSource) (n int64, err error) {
	over := t.on.use(func() { n, err = t.on.conn.CopyFrom(ctx, table, columns, from) })
	return n, errors.Join(over, err)
}

func (t *tx) SendBatch(ctx context.Context, b *pgx.Batch) (results pgx.BatchResults) {
	if over := t.on.use(func() { results = t.on.conn.SendBatch(ctx, b) }); over != nil {
		return failedBatch{err: over}
	}
	return results
}

func (t *tx) Prepare(ctx context.Context, name, text string) (s *pgconn.StatementDescription, err error) {
	over := t.on.use(func() { s, err = t.on.conn.Prepare(ctx, name, text) })
	return s, errors.Join(over, err)
}

// LargeObjects is not to be had: SQL has lo_create, lo_put and lo_get.
func (t *tx) LargeObjects() pgx.LargeObjects { return pgx.LargeObjects{} }

// Conn returns the connection of the transaction.
func (t *tx) Conn() *pgx.Conn { return t.on.conn }

// failedRows are those of a statement that was refused.
type failedRows struct {
	pgx.Rows // nil
	err      error
}

func (f failedRows) Close()                        {}
func (f failedRows) Err() error                    { return f.err }
func (f failedRows) CommandTag() pgconn.CommandTag { return pgconn.CommandTag{} }
func (f failedRows) Next() bool                    { return false }
func (f failedRows) Scan(...any) error             { return f.err }
func (f failedRows) Values() ([]any, error)        { return nil, f.err }

type failedBatch struct {
	pgx.BatchResults // nil
	err              error
}

func (f failedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, f.err }
func (f failedBatch) Query() (pgx.Rows, error)         { return failedRows{err: f.err}, f.err }
func (f failedBatch) QueryRow() pgx.Row                { return failedRows{err: f.err} }
func (f failedBatch) Close() error                     { return f.err }
