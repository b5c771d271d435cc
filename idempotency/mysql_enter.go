package idempotency

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/watermill-spillway/spillway/internal/keys"
	"github.com/watermill-spillway/spillway/internal/mysql"
	"github.com/watermill-spillway/spillway/internal/wait"
)

// maxPauseMySQL is how long a claim pauses at the most before it asks for its key again.
const maxPauseMySQL = 100 * time.Millisecond

// begin leaves nothing open when it fails.
func (c *mysqlClaim) begin(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("mysql: take a connection: %w", err)
	}
	c.conn = conn
	return c.guard(func() error {
		// The transaction's context ends with ctx as long as the key is not entered, and from then on with the claim alone.
		var lasting context.Context
		lasting, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
		attached := context.AfterFunc(ctx, c.cancel)
		err := c.enterInTurn(lasting)
		if detached := attached(); !detached {
			// How a driver says that it was interrupted differs, and must not decide what the error is.
			err = fmt.Errorf("mysql: wait for the key: %w", ctx.Err())
		}
		if err != nil {
			c.throwAway()
		}
		return err
	})
}

// enterInTurn enters the key, in a new transaction each time the server ends the wait for it: after
// innodb_lock_wait_timeout, and with a deadlock when the transaction ahead rolls back and several waited for it. Each of
// those holds a lock on the key's place then, so that none of them could insert.
func (c *mysqlClaim) enterInTurn(ctx context.Context) error {
	if _, err := c.conn.ExecContext(ctx, holdMySQL); err != nil {
		return fmt.Errorf("mysql: prepare the connection: %w", err)
	}
	for pause := time.Millisecond; ; pause = min(2*pause, maxPauseMySQL) {
		err := c.enter(ctx)
		if !mysql.Undone(err) {
			return err
		}
		if c.tx == nil || c.tx.Rollback() != nil || !wait.For(ctx, rand.N(pause)) {
			return err
		}
	}
}

// enter enters the key. Where it is a duplicate its row is committed, and READ COMMITTED lets the next statement see it.
func (c *mysqlClaim) enter(ctx context.Context) (err error) {
	if c.tx, err = c.conn.BeginTx(ctx, mysql.Options); err != nil {
		return fmt.Errorf("mysql: begin: %w", err)
	}
	c.row.At = time.Now().UnixMilli()
	c.recorded, err = keys.InMySQL.Enter(ctx, c.tx, c.row)
	if err == nil && c.recorded == nil {
		_, err = c.tx.ExecContext(ctx, markMySQL)
	}
	if err != nil {
		return fmt.Errorf("mysql: enter the key: %w", err)
	}
	return nil
}
