package idempotency

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/watermill-spillway/spillway/internal/database/postgres"
	"github.com/watermill-spillway/spillway/internal/keytable"
	"github.com/watermill-spillway/spillway/internal/pipelined"
)

// enterInTime is enter, which also returns when the driver does not heed ctx.
func (c *postgresClaim) enterInTime(ctx context.Context) error {
	own := beneath(c.conn)
	defer cutOff(ctx, own)()
	return c.enter(ctx, own)
}

// enter begins the transaction and inserts the key. Where the key conflicts the row is committed, and READ COMMITTED lets the
// next statement see it.
func (c *postgresClaim) enter(ctx context.Context, own driver.Conn) error {
	entered, err := c.beginWithKey(ctx, own)
	if err != nil || entered {
		return err
	}
	return c.resolve(ctx)
}

// resolve is what follows where the key is there.
func (c *postgresClaim) resolve(ctx context.Context) (err error) {
	c.store.duplicate.Store(time.Now().UnixNano())
	c.recorded, err = keytable.InPostgres.Resolve(ctx, c.conn, c.row)
	if errors.Is(err, sql.ErrNoRows) { // it was purged in between
		c.recorded, err = keytable.InPostgres.Enter(ctx, c.conn, c.row)
	}
	return err
}

// wary is how long a store asks whether keys are there, when one was. For the rest of the time it takes every key for a new
// one: that is quicker, and where it is wrong the server logs an error, which nobody wants a thousand of.
const wary = time.Minute

func (c *postgresClaim) hopeful() bool {
	return time.Now().UnixNano()-c.store.duplicate.Load() > int64(wary)
}

// beginWithKey is one round trip, and another where a hope was in vain.
func (c *postgresClaim) beginWithKey(ctx context.Context, own driver.Conn) (entered bool, err error) {
	statement := keytable.EnteringPostgres(c.row, c.hopeful())
	changed, err := c.send(ctx, own, statement)
	another := err != driver.ErrSkip
	switch {
	case err == nil:
		return changed[1] > 0, nil
	case err == driver.ErrSkip || postgres.State(err) == notPrepared: // the driver's own statement: it was deallocated
		entered, err = c.beginInText(ctx, own, statement, another)
	}
	if postgres.State(err) == uniqueViolation {
		entered, err = c.beginInText(ctx, own, keytable.EnteringPostgres(c.row, false), true)
	}
	return entered, err
}

// uniqueViolation is how the server says that the key is there.
const uniqueViolation = "23505"

// send begins the transaction and enters the key through the driver's pipeline, if it has one, and sends other statements
// along.
func (c *postgresClaim) send(ctx context.Context, own driver.Conn, statement *keytable.Entering, others ...pipelined.Statement) (changed []int64, err error) {
	if c.store.send == nil {
		return nil, driver.ErrSkip
	}
	text, args := statement.Statement(c.row)
	all := append([]pipelined.Statement{{Text: keytable.BeginsPostgres}, {Text: text, Args: args}}, others...)
	failed := c.conn.Raw(func(any) error {
		changed, err = c.store.send(ctx, own, all...)
		if err == driver.ErrBadConn {
			return err
		}
		return nil
	})
	if err == nil {
		err = failed
	}
	return changed, err
}
