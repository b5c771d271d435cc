package sqlproxy

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"time"
)

// kept is how long an unused shell stays. It is short, because each shell is a goroutine, which tests may count.
const kept = 100 * time.Millisecond

// Pool begins transactions. It keeps their shells for the next ones, because a sql.DB costs a goroutine and some
// microseconds. The zero Pool is ready, and has nothing to close: a tenth of a second after the last transaction it has
// freed all shells.
type Pool struct {
	mu     sync.Mutex
	idle   []*shell
	unused int // how many of those were not needed since the last sweep
	swept  bool
}

// Begin returns a *sql.Tx in the transaction that owner has begun on conn. It lasts until Close, however ctx ends.
func (p *Pool) Begin(ctx context.Context, conn *sql.Conn, owner Single) (*Transaction, error) {
	t := &Transaction{c: Conn{conn: conn, owner: owner, shell: p.take()}, pool: p}
	t.c.shell.conn = &t.c
	var err error
	if t.tx, err = t.c.shell.db.BeginTx(context.WithoutCancel(ctx), nil); err != nil {
		return nil, errors.Join(err, t.c.Close())
	}
	return t, nil
}

func (p *Pool) take() *shell {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.idle) - 1
	if last < 0 {
		return newShell()
	}
	s := p.idle[last]
	p.idle = p.idle[:last]
	p.unused = min(p.unused, last)
	return s
}

// put takes back a shell whose transaction has ended.
func (p *Pool) put(s *shell) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, s)
	p.sweepLaterLocked()
}

func (p *Pool) sweepLaterLocked() {
	if p.swept || len(p.idle) == 0 {
		return
	}
	p.swept, p.unused = true, len(p.idle)
	time.AfterFunc(kept, p.sweep)
}

func (p *Pool) sweep() {
	p.mu.Lock()
	old := slices.Clone(p.idle[:p.unused])
	p.idle = slices.Delete(p.idle, 0, p.unused)
	p.swept = false
	p.sweepLaterLocked()
	p.mu.Unlock()
	for _, s := range old {
		_ = s.db.Close()
	}
}
