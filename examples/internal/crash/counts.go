package crash

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"time"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/middleware"
)

// What the consumer counts. The counts are for the reader: one that is lost to the kill decides nothing.
const (
	retry    = "retry"
	absorbed = "absorbed"
)

// Retry tries again quickly, since a demo should be short, and counts.
func (c *Consumer) Retry() middleware.RetryConfig {
	return middleware.RetryConfig{
		Backoff: middleware.Backoff{Initial: 20 * time.Millisecond, Max: 200 * time.Millisecond},
		Hooks: middleware.RetryHooks{OnRetry: func(context.Context, middleware.Attempt,
			time.Duration) {
			c.count(retry)
		}},
	}
}

// Receiver counts.
func (c *Consumer) Receiver() *idempotency.ReceiverConfig {
	return &idempotency.ReceiverConfig{
		Hooks: idempotency.Hooks{OnDuplicate: func(context.Context, idempotency.Key) { c.count(absorbed) }},
	}
}

const counts = `CREATE TABLE IF NOT EXISTS happened (what TEXT NOT NULL)`

// count notes that something happened, where it survives the process.
func (c *Consumer) count(what string) {
	if _, err := c.DB.Exec(c.Bind(`INSERT INTO happened (what) VALUES (?)`), what); err != nil {
		fmt.Fprintln(os.Stderr, "count:", err)
	}
}

func (s *history) happened(what string) (n int64, err error) {
	err = s.db.QueryRow(s.Bind(`SELECT count(*) FROM happened WHERE what = ?`), what).Scan(&n)
	return n, err
}

func applied(db *sql.DB) (n int, err error) {
	err = db.QueryRow(`SELECT count(DISTINCT id) FROM events`).Scan(&n)
	return n, err
}
