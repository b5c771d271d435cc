package prom_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit/databases"
)

// spy is a driver that counts statements, and can hang or panic.
type spy struct {
	address string
	of      driver.Driver

	mu     sync.Mutex
	asked  []string
	refuse func(statement string) error
}

// spied opens a pool whose statements are counted.
func spied(t *testing.T, d databases.Database, address string) (*sql.DB, *spy) {
	t.Helper()
	s := &spy{address: address, of: d.Open(t, address).Driver()}
	db := sql.OpenDB(s)
	t.Cleanup(func() { _ = db.Close() })
	return db, s
}

func (s *spy) Driver() driver.Driver { return s.of }

func (s *spy) Connect(context.Context) (driver.Conn, error) {
	conn, err := s.of.Open(s.address)
	if err != nil {
		return nil, err
	}
	return &spyConn{conn, s}, nil
}

func (s *spy) note(statement string) error {
	s.mu.Lock()
	s.asked = append(s.asked, statement)
	refuse := s.refuse
	s.mu.Unlock()
	if refuse != nil {
		return refuse(statement)
	}
	return nil
}

// count returns how many statements had these words.
func (s *spy) count(words string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, statement := range s.asked {
		if strings.Contains(statement, words) {
			n++
		}
	}
	return n
}

func (s *spy) with(refuse func(statement string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

type spyConn struct {
	driver.Conn
	spy *spy
}

func (c *spyConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	if err == driver.ErrSkip { // it comes again, prepared
		return nil, err
	}
	if refused := c.spy.note(query); refused != nil {
		if rows != nil {
			_ = rows.Close()
		}
		return nil, refused
	}
	return rows, err
}

func (c *spyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *spyConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.spy.note(query); err != nil {
		return nil, err
	}
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
}

func (c *spyConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c *spyConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func newMessage(id string) *message.Message { return message.NewMessage(id, []byte("acme")) }
