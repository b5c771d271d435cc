package crash

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"time"

	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/middleware"
)

// What the consumer counts. The counts are for the reader: one that is lost to the kill decides nothing.
const (
	retry    = "retry"
	absorbed = "absorbed"
)

// Retry tries again quickly, as nobody wants to wait in a demo, and counts.
func (c *Consumer) Retry() middleware.RetryConfig {
	return middleware.RetryConfig{
		Backoff: middleware.Backoff{Initial: 20 * time.Millisecond, Max: 200 * time.Millisecond},
		OnRetry: func(context.Context, middleware.Attempt, time.Duration) { c.count(retry) },
	}
}

// Receiver counts.
func (c *Consumer) Receiver() idempotency.ReceiverConfig {
	return idempotency.ReceiverConfig{
		OnDuplicate: func(context.Context, idempotency.Key) { c.count(absorbed) },
	}
}

const schema = webhooks.Schema + `; CREATE TABLE IF NOT EXISTS happened (what TEXT NOT NULL)`

// count notes that something happened, where it survives the process.
func (c *Consumer) count(what string) {
	if _, err := c.DB.Exec(`INSERT INTO happened (what) VALUES ($1)`, what); err != nil {
		fmt.Fprintln(os.Stderr, "count:", err)
	}
}

func happened(db *sql.DB, what string) (n int64, err error) {
	err = db.QueryRow(`SELECT count(*) FROM happened WHERE what = $1`, what).Scan(&n)
	return n, err
}

func applied(db *sql.DB) (n int, err error) {
	err = db.QueryRow(`SELECT count(DISTINCT id) FROM events`).Scan(&n)
	return n, err
}
