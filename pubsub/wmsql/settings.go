package wmsql

import (
	"context"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/keytable"
	"github.com/watermill-spillway/spillway/internal/sqlproxy"
)

// notice is told of each statement before it runs. One that is not plain may leave something behind in the session until the
// transaction ends, such as a setting, a temporary table, a cursor: the message is then the last of its batch, so that the
// next one does not find it. In PostgreSQL it may also change the settings under which our own statements find their tables.
func (t *transaction) notice(ctx context.Context, query string) error {
	if sqlproxy.Plain(query, "SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "MERGE", "VALUES", "SAVEPOINT", "RELEASE") {
		return nil
	}
	t.mu.Lock()
	t.marked = true
	read := t.dialect.settings != "" && t.settings == nil && t.over == nil && t.aborted == nil
	t.mu.Unlock()
	if !read {
		return nil
	}
	settings := new(keytable.Settings)
	if err := t.db.QueryRowContext(ctx, t.dialect.settings).Scan(&settings.SearchPath, &settings.Role); err != nil {
		return fmt.Errorf("wmsql: read the settings that a statement may change: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.settings == nil { // else another goroutine of the handler's was first, and may have changed them
		t.settings = settings
	}
	return nil
}

// leaves tells whether a statement may have left something behind.
func (t *transaction) leaves() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.marked
}

// reset sets back what a handler may have set.
func (t *transaction) reset() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.settings == nil {
		return nil
	}
	if err := t.sayLocked(t.settings.Restore()); err != nil {
		return fmt.Errorf("wmsql: set role and search_path back: %w", err)
	}
	return nil
}
