package idempotency

import (
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/logging"
)

// stuckAfter is how long all connections of a pool must be in use, while no claim ends, before that is logged. It is
// logged after twice this time at the latest.
const stuckAfter = 5 * time.Second

// pool looks after the connections of a store: handlers that wait for one that other handlers hold wait for ever. A
// timer looks, as long as there are claims; a claim itself costs two additions.
type pool struct {
	db      *sql.DB // nil is none to look after
	logger  watermill.LoggerAdapter
	claims  atomic.Int64
	ends    atomic.Int64
	looking atomic.Bool
	told    atomic.Bool

	mu   sync.Mutex
	last glance
}

// glance is what was seen at a time.
type glance struct {
	full   bool
	ends   int64
	waited time.Duration
}

func (p *pool) began() {
	if p.db == nil {
		return
	}
	p.claims.Add(1)
	if !p.looking.Load() && !p.told.Load() && p.looking.CompareAndSwap(false, true) {
		time.AfterFunc(stuckAfter, p.look)
	}
}

func (p *pool) ended() {
	if p.db == nil {
		return
	}
	p.ends.Add(1)
	p.claims.Add(-1)
}

// look compares what it sees with what it saw the last time.
func (p *pool) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	stats := p.db.Stats()
	now := glance{full: p.full(), ends: p.ends.Load(), waited: stats.WaitDuration}
	// WaitCount is of waits that began, WaitDuration of those that ended.
	if now.full && now == p.last && stats.WaitCount > 0 {
		p.tell(stuckAfter)
	}
	p.last = now
	if p.claims.Load() == 0 || p.told.Load() {
		p.last = glance{}
		p.looking.Store(false)
		return
	}
	time.AfterFunc(stuckAfter, p.look)
}

// full reports whether every connection that the pool may have is in use.
func (p *pool) full() bool {
	if p.db == nil {
		return false
	}
	stats := p.db.Stats()
	return stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections
}

var errPoolUsedUp = errors.New("idempotency: the pool of the store's *sql.DB is used up: each claim holds a " +
	"connection while its handler runs, and a handler that uses the *sql.DB takes another one; raise SetMaxOpenConns to " +
	"the number of messages handled at the same time, times the connections that each needs, or let handlers write through Tx")

// tell logs once that the pool is used up.
func (p *pool) tell(waited time.Duration) {
	if p.told.Swap(true) {
		return
	}
	stats := p.db.Stats()
	logging.PoolUsedUp.Write(p.logger, errPoolUsedUp, logging.Fields{
		"max_open_connections": stats.MaxOpenConnections, "in_use": stats.InUse, "claims": p.claims.Load(),
		"waited": waited.String(),
	})
}
