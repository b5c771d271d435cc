package postgresclaim

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"reflect"
	"sync"

	"github.com/watermill-spillway/spillway/internal/database/postgres"
	"github.com/watermill-spillway/spillway/internal/keytable"
)

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
