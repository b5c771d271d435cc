package idempotency

import (
	"context"
	"database/sql/driver"
	"reflect"
	"sync"

	"github.com/watermill-spillway/spillway/internal/database/postgres"
	"github.com/watermill-spillway/spillway/internal/keytable"
)

// The answers of a connection that does not have a prepared statement, and of one that has it already.
const (
	notPrepared     = "26000"
	alreadyPrepared = "42P05"
)

// beginInText begins the transaction, after the end of another if there is one, and enters the key. Without arguments drivers
// send the text as it is, and PostgreSQL takes several statements at once. The statement is prepared where the connection
// does not seem to have it. What we think we know may be wrong: a handler can deallocate everything, and a pooler exchange
// the connection.
func (c *postgresClaim) beginInText(ctx context.Context, own driver.Conn, statement *keytable.Entering, another bool) (entered bool, err error) {
	on := identify(own, statement)
	known := preparedOn.has(on)
	prepare := !known
	result, err := c.conn.ExecContext(ctx, statement.Begin(c.row, another, prepare))
	for range 2 {
		switch postgres.State(err) {
		case notPrepared:
			prepare = true
		case alreadyPrepared:
			prepare = false
		default:
			if err != nil {
				return false, err
			}
			if !known {
				preparedOn.add(on)
			}
			n, err := result.RowsAffected()
			return n > 0, err
		}
		result, err = c.conn.ExecContext(ctx, statement.Begin(c.row, true, prepare))
	}
	return false, err
}

// preparation is one of our statements on a connection.
type preparation struct {
	conn      uintptr // where the driver's connection is in memory: another may be there later
	statement *keytable.Entering
}

func identify(own driver.Conn, statement *keytable.Entering) preparation {
	p := preparation{statement: statement}
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
