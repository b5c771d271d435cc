package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// PoolerRemedy is what to do about connections that lead to the sessions of others.
const PoolerRemedy = "a pooler between lets clients share sessions, and what one prepares another meets: add " +
	"default_query_exec_mode=exec, or cache_describe, to the address of the database (pgx), let the pooler keep " +
	"prepared statements (PgBouncer 1.21 and later: max_prepared_statements), or set it to session mode"

// Pooled reports whether an error comes of a pooler in transaction mode: what the driver prepared is in another
// session.
func Pooled(err error) bool {
	state := State(err)
	return state == DuplicatePrepared || state == NotPrepared
}

// WithRemedy adds the PoolerRemedy to an error that comes of a pooler.
func WithRemedy(err error) error {
	if Pooled(err) {
		return fmt.Errorf("%s: %w", PoolerRemedy, err)
	}
	return err
}

const (
	// rounds is how many questions two connections ask, the first one twice. Other processes can take the shared session
	// in between, and in turn.
	rounds = 5
	// secondTimeout bounds the wait for a second connection.
	secondTimeout = 5 * time.Second
)

// RequireSessions returns an error if db prepares statements, and its connections have no session of their own: a
// pooler in transaction mode is between. Two connections that ask the same question in turn then share a session. If
// the pool has no second connection to spare, it asks nothing.
func RequireSessions(ctx context.Context, db *sql.DB) error {
	if s := db.Stats(); s.MaxOpenConnections > 0 && s.MaxOpenConnections < s.InUse+2 {
		return nil
	}
	first, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("take a connection: %w", err)
	}
	defer func() { _ = first.Close() }()
	within, cancel := context.WithTimeout(ctx, secondTimeout)
	defer cancel()
	second, err := db.Conn(within)
	if err != nil {
		return ctx.Err()
	}
	defer func() { _ = second.Close() }()
	for round := range rounds {
		question := fmt.Sprintf(`SELECT $1::int + %d`, round) // each is prepared anew
		for _, conn := range []*sql.Conn{first, first, second} {
			var answer any
			if err := conn.QueryRowContext(ctx, question, round).Scan(&answer); err != nil {
				return WithRemedy(fmt.Errorf("ask whether connections share sessions: %w", err))
			}
		}
	}
	return nil
}
