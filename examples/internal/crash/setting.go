// Package crash is the story that the examples on real brokers share: a process of its own consumes the events, is
// killed in the middle, started again, replaced by a mended one, and in the end nothing is lost and nothing happened
// twice. Whatever the parent must know of a process that dies is in the database or on the broker.
package crash

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/idempotency"
)

// Setting is what the consuming process is told, in the first line of its standard input: it names a database, and
// arguments can be read by every user of the machine.
type Setting struct {
	Brokers string // their address
	Topic   string
	Driver  string // of the database
	DSN     string
	Input   string // file of events
	Seed    uint64
	Fixed   bool // the fix is deployed
}

// Consumer is what the consuming process works with.
type Consumer struct {
	Setting
	DB     *sql.DB
	Faults *webhooks.Faults
}

// Consume reads the setting and calls run, whose context ends with in: so the process never outlives its parent.
func Consume(in io.Reader, run func(ctx context.Context, c *Consumer) error) (err error) {
	lines := bufio.NewReader(in)
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the setting: %w", err)
	}
	c := &Consumer{}
	if err := json.Unmarshal(line, &c.Setting); err != nil {
		return fmt.Errorf("read the setting: %w", err)
	}
	events, err := webhooks.Load(c.Input)
	if err != nil {
		return err
	}
	_, c.Faults = webhooks.Prepare(events, c.Seed)
	c.Faults.Fixed.Store(c.Fixed)
	if c.DB, err = sql.Open(c.Driver, c.DSN); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.DB.Close()) }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		cancel()
	}()
	return run(ctx, c)
}

// Keys is where the consumer keeps which events it has applied.
func (c *Consumer) Keys() idempotency.Store {
	if c.Driver == "pgx" {
		return idempotency.Postgres(c.DB)
	}
	return idempotency.SQLite(c.DB)
}

// What the consumer counts. The counts are for the reader: one that is lost to the kill decides nothing.
const (
	Retry    = "retry"
	Absorbed = "absorbed"
)

const schema = webhooks.Schema + `; CREATE TABLE IF NOT EXISTS happened (what TEXT NOT NULL)`

// Count notes that something happened, where it survives the process.
func (c *Consumer) Count(what string) {
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

// inFolder is a SQLite database that two processes share, hence the busy time-out.
func inFolder() (driver, dsn string, remove func() error, err error) {
	folder, err := os.MkdirTemp("", "spillway-webhooks-")
	if err != nil {
		return "", "", nil, err
	}
	dsn = "file:" + filepath.Join(folder, "webhooks.db") + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)"
	return "sqlite", dsn, func() error { return os.RemoveAll(folder) }, nil
}
