package idempotency

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"reflect"
	"sync"

	"github.com/watermill-spillway/spillway/internal/keys"
	"github.com/watermill-spillway/spillway/internal/postgres"
)

// The answers of a connection that does not have a prepared statement, and of one that has it already.
const (
	notPrepared     = "26000"
	alreadyPrepared = "42P05"
)

// enterInTime is enter, which also returns when the driver does not heed ctx.
func (c *postgresClaim) enterInTime(ctx context.Context) error {
	own := beneath(c.conn)
	defer cutOff(ctx, own)()
	return c.enter(ctx, own)
}

// enter begins the transaction and inserts the key. Without arguments drivers send the text as it is, and PostgreSQL takes
// several statements at once. Where the key conflicts the row is committed, and READ COMMITTED lets the next statement see it.
func (c *postgresClaim) enter(ctx context.Context, own driver.Conn) error {
	result, err := c.beginWithKey(ctx, own)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n > 0 {
		return err
	}
	c.recorded, err = keys.InPostgres.Resolve(ctx, c.conn, c.row)
	if errors.Is(err, sql.ErrNoRows) { // it was purged in between
		c.recorded, err = keys.InPostgres.Enter(ctx, c.conn, c.row)
	}
	return err
}

// beginWithKey prepares the statement where the connection does not seem to have it. What we think we know may be wrong: a
// handler can deallocate everything, and a pooler exchange the connection.
func (c *postgresClaim) beginWithKey(ctx context.Context, own driver.Conn) (sql.Result, error) {
	on := identify(own, c.row.Versioned)
	known := preparedOn.has(on)
	prepare := !known
	result, err := c.conn.ExecContext(ctx, keys.BeginPostgres(c.row, false, prepare))
	for range 2 {
		switch postgres.State(err) {
		case notPrepared:
			prepare = true
		case alreadyPrepared:
			prepare = false
		default:
			if err == nil && !known {
				preparedOn.add(on)
			}
			return result, err
		}
		result, err = c.conn.ExecContext(ctx, keys.BeginPostgres(c.row, true, prepare))
	}
	return result, err
}

// preparation is one of our statements on a connection.
type preparation struct {
	conn      uintptr // where the driver's connection is in memory: another may be there later
	versioned bool
}

func identify(own driver.Conn, versioned bool) preparation {
	p := preparation{versioned: versioned}
	if v := reflect.ValueOf(own); v.Kind() == reflect.Pointer {
		p.conn = v.Pointer()
	}
	return p
}

// preparations remembers a limited number of them.
type preparations struct {
	mu  sync.Mutex
	all map[preparation]struct{}
}

const maxPreparations = 4096

var preparedOn = preparations{all: map[preparation]struct{}{}}

func (p *preparations) has(one preparation) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, has := p.all[one]
	return has
}

func (p *preparations) add(one preparation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.all) >= maxPreparations {
		clear(p.all)
	}
	p.all[one] = struct{}{}
}
