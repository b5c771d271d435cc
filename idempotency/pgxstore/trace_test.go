package pgxstore_test

import (
	"context"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
)

// trace notes what pgx sends: a batch as one line.
type trace struct {
	mu   sync.Mutex
	said []string
}

func (t *trace) note(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.said = append(t.said, text)
}

// take returns what was said since it was called before.
func (t *trace) take() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	said := t.said
	t.said = nil
	return said
}

func (t *trace) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	t.note(short(data.SQL))
	return ctx
}
func (t *trace) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (t *trace) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	var texts []string
	for _, q := range data.Batch.QueuedQueries {
		texts = append(texts, short(q.SQL))
	}
	t.note(strings.Join(texts, " + "))
	return ctx
}
func (t *trace) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (t *trace) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// short names the statements of a claim.
func short(text string) string {
	switch {
	case strings.Contains(text, "EXECUTE spillway_"):
		return "text"
	case text == "BEGIN ISOLATION LEVEL READ COMMITTED":
		return "begin"
	case strings.HasPrefix(text, "INSERT INTO spillway_keys") && strings.Contains(text, "DO UPDATE"):
		return "upsert"
	case strings.HasPrefix(text, "INSERT INTO spillway_keys") && strings.Contains(text, "DO NOTHING"):
		return "enter"
	case strings.HasPrefix(text, "INSERT INTO spillway_keys"):
		return "insert"
	case strings.HasPrefix(text, "SELECT outputs, fingerprint"):
		return "find"
	}
	return text
}
