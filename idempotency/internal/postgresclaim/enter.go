package postgresclaim

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"reflect"
	"sync"

	"github.com/watermill-spillway/spillway/idempotency/internal/claims"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/internal/sqlstore/pipelined"
)

// enterInTime is enter, which also returns when the driver does not heed ctx.
func (c *Claim) enterInTime(ctx context.Context) error {
	own := claims.Driver(c.conn)
	defer claims.CutOff(ctx, own)()
	return c.enter(ctx, own)
}

// enter begins the transaction and inserts the key. Where the key conflicts the row is committed, and READ COMMITTED
// lets the next statement see it.
func (c *Claim) enter(ctx context.Context, own driver.Conn) error {
	entered, err := c.beginWithKey(ctx, own)
	if err != nil || entered {
		return err
	}
	return c.resolve(ctx)
}

// resolve is what follows where the key is there.
func (c *Claim) resolve(ctx context.Context) (err error) {
	c.recorded, err = keytable.InPostgres.Resolve(ctx, c.conn, c.row)
	if errors.Is(err, sql.ErrNoRows) { // it was purged in between
		c.recorded, err = keytable.InPostgres.Enter(ctx, c.conn, c.row)
	}
	return err
}

// beginWithKey is one round trip, and another where a connection has lost what it had prepared.
func (c *Claim) beginWithKey(ctx context.Context, own driver.Conn) (entered bool, err error) {
	changed, err := c.send(ctx, own)
	switch {
	case err == nil:
		return changed[1] > 0, nil
	case err == driver.ErrSkip || postgres.State(err) == postgres.NotPrepared: // the driver's own statement: it was deallocated
		return c.beginInText(ctx, own, err != driver.ErrSkip)
	}
	return false, err
}

// send begins the transaction and enters the key through the driver's pipeline, if it has one, and sends other
// statements along.
func (c *Claim) send(ctx context.Context, own driver.Conn, others ...pipelined.Statement) (changed []int64, err error) {
	if c.store.Send == nil {
		return nil, driver.ErrSkip
	}
	text, args := keytable.EnterPostgres(c.row)
	all := append([]pipelined.Statement{{Text: keytable.BeginsPostgres}, {Text: text, Args: args}}, others...)
	failed := c.conn.Raw(func(any) error {
		changed, err = c.store.Send(ctx, own, all...)
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

// beginInText begins the transaction, after the end of another if there is one, and enters the key. Without arguments
// drivers send the text as it is, and PostgreSQL takes several statements at once. They are prepared first if the
// connection does not seem to have them. What we think we know may be wrong: a handler can deallocate everything, a
// pooler exchange the connection, and a new connection be where an old one was in memory.
func (c *Claim) beginInText(ctx context.Context, own driver.Conn, another bool) (entered bool, err error) {
	prepare := !c.store.prepared.on(own)
	for range 3 {
		var result sql.Result
		result, err = c.conn.ExecContext(ctx, keytable.BeginPostgres(c.row, another, prepare))
		switch postgres.State(err) {
		case postgres.NotPrepared:
			prepare, another = true, true
			continue
		case postgres.DuplicatePrepared:
			prepare, another = false, true
			continue
		}
		if err != nil {
			return false, err
		}
		c.store.prepared.note(own)
		n, err := result.RowsAffected()
		return n > 0, err
	}
	return false, err
}

// prepared remembers by their addresses a limited number of connections that have our statements.
type prepared struct {
	mu  sync.Mutex
	all map[uintptr]struct{}
}

const maxPrepared = 4096

func (p *prepared) on(own driver.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, has := p.all[address(own)]
	return has
}

func (p *prepared) note(own driver.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil || len(p.all) >= maxPrepared {
		p.all = make(map[uintptr]struct{})
	}
	p.all[address(own)] = struct{}{}
}

func address(own driver.Conn) uintptr {
	if v := reflect.ValueOf(own); v.Kind() == reflect.Pointer {
		return v.Pointer()
	}
	return 0
}
