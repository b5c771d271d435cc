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

// use gives the driver's connection to work, and keeps it for the next time. After an error the connection is given back.
// With driver.ErrBadConn work has it closed, which is no error of use; one of the pool's own is.
func (s *session) use(ctx context.Context, db *sql.DB, work func(driver.Conn, map[string]driver.Stmt) error) (err error) {
	if s.conn == nil {
		if s.conn, err = db.Conn(ctx); err != nil {
			s.conn = nil
			return fmt.Errorf("wmsql: take a connection: %w", err)
		}
		s.prepared = map[string]driver.Stmt{}
	}
	err = s.conn.Raw(func(raw any) error {
		conn, ok := raw.(driver.Conn)
		if !ok {
			return fmt.Errorf("wmsql: the driver's connection %T is no driver.Conn", raw)
		}
		return work(conn, s.prepared)
	})
	if err != nil {
		s.release()
	}
	if err == driver.ErrBadConn {
		return nil
	}
	return err
}

// release gives the connection back to the pool.
func (s *session) release() {
	if s.conn == nil {
		return
	}
	_ = s.conn.Raw(func(any) error { // of a connection that is closed nothing is prepared any more
		for _, stmt := range s.prepared {
			_ = stmt.Close()
		}
		return nil
	})
	_ = s.conn.Close()
	s.conn, s.prepared = nil, nil
}
