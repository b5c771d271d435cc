package wmsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
)

// session is a connection that a subscription keeps for itself while there is something to do, with the statements that
// are prepared on it.
type session struct {
	conn     *sql.Conn
	prepared map[string]driver.Stmt
}

// take takes a connection from the pool, unless there is one already.
func (s *session) take(ctx context.Context, db *sql.DB) error {
	if s.conn != nil {
		return nil
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("wmsql: take a connection: %w", err)
	}
	s.conn, s.prepared = conn, map[string]driver.Stmt{}
	return nil
}

// release gives the connection back to the pool.
func (s *session) release() {
	if s.conn == nil {
		return
	}
	_ = s.conn.Raw(func(any) error { // on a connection that is closed nothing is prepared any more
		for _, stmt := range s.prepared {
			_ = stmt.Close()
		}
		return nil
	})
	_ = s.conn.Close()
	s.conn, s.prepared = nil, nil
}

// discard closes the connection, which must not be used again.
func (s *session) discard() {
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
	s.release()
}
