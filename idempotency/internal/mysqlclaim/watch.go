package mysqlclaim

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/watermill-spillway/spillway/idempotency/internal/claims"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/internal/sqlstore/sqlproxy"
)

// Around a statement that may end the transaction:
const (
	// hold lets an end be followed by a new transaction, where by default each statement after it would commit on its
	// own: what a handler writes then is rolled back with the claim.
	hold     = `SET @spillway_autocommit = @@autocommit, autocommit = 0`
	giveBack = `SET autocommit = @spillway_autocommit`
	// The savepoint lives as long as the transaction that entered the key, however that one ends.
	setMark   = `SAVEPOINT spillway_key`
	probeMark = `RELEASE SAVEPOINT spillway_key`
)

// Before is called by the proxy. The mark stands before all savepoints of the handler's own, so that none can take it
// back.
func (c *Claim) Before(ctx context.Context, statement string, _ []driver.NamedValue) error {
	if c.doubt != nil && c.gone == nil {
		if err := c.resolveDoubt(ctx); err != nil {
			return err
		}
	}
	if err := cmp.Or(c.spoiled, c.gone); err != nil {
		return err
	}
	if c.marked || sqlproxy.Plain(statement, "SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH") {
		return nil
	}
	return c.mark(ctx)
}

// mark makes ready for a statement that may end the transaction. If it fails, the state of the transaction is unknown.
func (c *Claim) mark(ctx context.Context) error {
	c.spoiled, c.held = errNotReady, true
	for _, prepare := range []string{hold, setMark} {
		if _, err := c.conn.ExecContext(ctx, prepare); err != nil {
			c.spoiled = fmt.Errorf("%w: %w", errNotReady, err)
			return c.spoiled
		}
	}
	c.spoiled, c.marked = nil, true
	return nil
}

var errNotReady = errors.New("mysql: cannot make ready for a statement that may end the transaction")

// Failed is called by the proxy. After a deadlock the server has rolled back, after most other errors it has not: the
// key tells.
func (c *Claim) Failed(_ context.Context, err error) error {
	switch number := mysql.Number(err); {
	case number == mysql.Deadlock:
		c.lose(err)
	case number != 0 && !c.marked && c.doubt == nil:
		c.doubt = err
	}
	return err
}

// Committed is called by the proxy.
func (c *Claim) Committed() error { return claims.CommittedByHandler("mysql", c.row) }

// resolveDoubt asks for the key, which a rollback took away. An error means that it is unknown.
func (c *Claim) resolveDoubt(ctx context.Context) error {
	if c.doubt == nil || c.gone != nil {
		return nil
	}
	there, err := keytable.InMySQL.Entered(ctx, c.conn, c.row)
	if err != nil {
		return fmt.Errorf("mysql: find out whether the transaction goes on after an error: %w", err)
	}
	if !there {
		c.lose(c.doubt)
	}
	c.doubt = nil
	return nil
}

// lose lets no statement follow, which would commit on its own.
func (c *Claim) lose(because error) {
	c.gone = fmt.Errorf("mysql: the server rolled the transaction back when a statement failed: %w", because)
}
