// Package waiting counts and erases what waits in the table spillway_delayed, for those who move none of it: package
// delayed puts messages there, and publishes them.
package waiting

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/internal/chain/delays"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
)

const (
	// maxWrite bounds every statement, the wait for others included.
	maxWrite = 30 * time.Second
	// MaxTopics is how many topics Waiting tells of.
	MaxTopics = 1000
)

// Schema is of the table spillway_delayed.
var Schema = schema.Table{Component: "delayed", Name: "spillway_delayed", Key: []string{"seq"},
	Versions: []schema.Version{{
		File: "0006_delayed.sql",
		Columns: []string{"seq", "service", "topic", "id", "metadata", "payload", "size", "due_at", "ready_at", "token",
			"failures"},
	}}}

// Table is what a service has in the table.
type Table struct {
	db      *database.Database
	service string
}

// Of returns the Table of a service.
func Of(on *database.Database, service string) *Table { return &Table{on, service} }

// DB returns the database of the table.
func (t *Table) DB() *sql.DB { return t.db.DB() }

// Service returns the service whose messages these are.
func (t *Table) Service() string { return t.service }

// ErrHeld is the error of a call within a receiver's claim on the same database.
var ErrHeld = errors.New("the message's own transaction holds the database, so this would wait for itself: put " +
	"outside of handlers with an idempotent receiver on the same file, or give the store a file of its own")

// Waiting counts what is kept, topic by topic, most messages first, at most 1,000 topics. It reads the whole table, so
// call it now and then, for people and metrics.
func (t *Table) Waiting(ctx context.Context) (waiting []delays.Waiting, err error) {
	if t.db.Held(ctx) && t.db.DB().Stats().MaxOpenConnections == 1 {
		return nil, fmt.Errorf("delay: count what waits: %w", ErrHeld)
	}
	err = t.Rows(ctx, func() { waiting = nil }, func(rows *sql.Rows) error {
		var w delays.Waiting
		var topic []byte
		var next int64
		err := rows.Scan(&topic, &w.Messages, &next)
		w.Topic, w.Next = string(topic), database.Microseconds(next)
		waiting = append(waiting, w)
		return err
	}, t.db.Statement(`SELECT topic, COUNT(*), MIN(due_at) - now_us() FROM spillway_delayed WHERE service = ? GROUP BY topic
ORDER BY COUNT(*) DESC, topic LIMIT ?`), []byte(t.service), MaxTopics)
	if err != nil {
		return nil, fmt.Errorf("delay: count what waits: %w", err)
	}
	return waiting, nil
}

// Rows queries and calls scan with each row, after reset. If a writer of another process is in the way, it begins
// again.
func (t *Table) Rows(ctx context.Context, reset func(), scan func(*sql.Rows) error, query string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	return t.db.Query(ctx, reset, scan, query, args...)
}

// Left returns what waits in db for a service that has no Store there, such as one that went back to stage topics. It
// makes no table: without one nothing waits. It reads the whole table, for at most 30 seconds.
func Left(ctx context.Context, db *sql.DB, service string) ([]delays.Waiting, error) {
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	on, err := database.Detect(ctx, db)
	there := false
	if err == nil {
		there, err = on.Has(ctx, Schema)
	}
	if err != nil {
		return nil, fmt.Errorf("delay: look for messages that are left: %w", err)
	}
	if !there {
		return nil, nil
	}
	return Of(on, service).Waiting(ctx)
}
