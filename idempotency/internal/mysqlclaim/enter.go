package mysqlclaim

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
)

const (
	// maxPause is how long a claim pauses at most before it asks for its key again.
	maxPause = 100 * time.Millisecond
	// notUnderstood is the number of a syntax error.
	notUnderstood = 1064
)

// Begin enters the key, and waits while another transaction holds the same one. It leaves nothing open when it fails.
func (s *Store) Begin(ctx context.Context, row keytable.Row) (*Claim, error) {
	conn, err := s.DB.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("mysql: take a connection: %w", err)
	}
	c := &Claim{row: row, store: s, conn: conn}
	err = c.guard(func() error {
		err := c.enterInTurn(ctx)
		if err == nil && c.recorded == nil {
			c.proxy, err = c.store.proxies.Begin(ctx, conn, c)
		}
		if err == nil {
			return nil
		}
		c.throwAway()
		// how a driver says that it was interrupted differs, and must not decide what the error is
		if ctx.Err() != nil {
			return fmt.Errorf("mysql: wait for the key: %w", ctx.Err())
		}
		return fmt.Errorf("mysql: begin, and enter the key: %w", err)
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// enterInTurn enters the key, in a new transaction each time the server ends the wait for it: after
// innodb_lock_wait_timeout, and with a deadlock when the transaction ahead rolls back and several waited for it. Each
// of those holds a lock on the key's place then, so that none of them could insert.
func (c *Claim) enterInTurn(ctx context.Context) error {
	for pause := time.Millisecond; ; pause = min(2*pause, maxPause) {
		err := c.enter(ctx)
		if !mysql.Undone(err) {
			return err
		}
		if _, failed := c.conn.ExecContext(ctx, `ROLLBACK`); failed != nil || !wait.For(ctx, rand.N(pause)) {
			return err
		}
	}
}

// enter enters the key. Where it is a duplicate its row is committed, and READ COMMITTED lets the next statement see
// it.
func (c *Claim) enter(ctx context.Context) error {
	c.row.At = time.Now().UnixMilli()
	err := c.beginWithKey(ctx)
	if mysql.Number(err) != mysql.Duplicate {
		return err
	}
	if !c.row.Versioned {
		c.recorded, err = keytable.InMySQL.Resolve(ctx, c.conn, c.row)
		if !errors.Is(err, sql.ErrNoRows) { // else it was purged in between
			return err
		}
	}
	c.recorded, err = keytable.InMySQL.Enter(ctx, c.conn, c.row)
	return err
}

// beginWithKey begins the transaction and inserts the key: in one compound statement, as MariaDB knows them, or in
// three. A compound that fails, at a duplicate say, leaves the transaction open.
func (c *Claim) beginWithKey(ctx context.Context) error {
	const isolation, begin = `SET TRANSACTION ISOLATION LEVEL READ COMMITTED`, `START TRANSACTION`
	enter := keytable.EnterMySQL(c.row)
	if !c.store.plain.Load() {
		_, err := c.conn.ExecContext(ctx, `BEGIN NOT ATOMIC `+isolation+`; `+begin+`; `+enter+`; END`)
		if mysql.Number(err) != notUnderstood {
			return err
		}
		c.store.plain.Store(true)
	}
	for _, statement := range []string{isolation, begin, enter} {
		if _, err := c.conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
