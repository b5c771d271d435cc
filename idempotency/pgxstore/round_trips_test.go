package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature I2: a claim is one round trip, of BEGIN and the key, or of BEGIN, the key and the handler's first statement.
// Where the connection cannot do that, it goes as text.
func TestRoundTrips(t *testing.T) {
	const query = `SELECT id FROM effects WHERE id = $1`
	reads := func(msg *message.Message) ([]*message.Message, error) {
		err := idempotency.Tx(msg.Context()).QueryRowContext(msg.Context(), query, "nobody").Scan(new(string))
		if !errors.Is(err, sql.ErrNoRows) {
			return nil, err
		}
		return write(msg)
	}
	says := func(text string, args ...any) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			_, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(), text, args...)
			return nil, err
		}
	}
	for _, v := range []struct {
		name, settings string
		handle         message.HandlerFunc
		want           []string
	}{
		{"with the first", "", write, []string{"begin + enter + " + effect, "COMMIT"}},
		{"before a query", "", reads, []string{"begin + enter", query, effect, "COMMIT"}},
		{"before what has no arguments", "", says(`UPDATE effects SET id = 'b'`), []string{"begin + enter", `UPDATE effects SET id = 'b'`, "COMMIT"}},
		{"before what takes locks", "", says(`SELECT pg_advisory_xact_lock($1)`, 1), []string{"begin + enter", `SELECT pg_advisory_xact_lock($1)`, "COMMIT"}},
		{"before an option", "", says(effect, pgx.QueryExecModeExec, "a"), []string{"begin + enter", effect, "COMMIT"}},
		{"before names", "", says(`INSERT INTO effects VALUES (@id)`, pgx.NamedArgs{"id": "a"}), []string{"begin + enter", `INSERT INTO effects VALUES (@id)`, "COMMIT"}},
		{"nothing said", "", func(*message.Message) ([]*message.Message, error) { return nil, nil }, []string{"begin + enter", "COMMIT"}},
		{"described", "&default_query_exec_mode=cache_describe", write, []string{"begin + enter + " + effect, "COMMIT"}},
		{"text", "&default_query_exec_mode=exec", write, []string{"text", effect, "COMMIT"}},
		{"simple", "&default_query_exec_mode=simple_protocol", write, []string{"text", effect, "COMMIT"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			db, said := open(t, v.settings)
			h := receiver(t, pipelining(t, db), idempotency.ReceiverConfig{}).Middleware(v.handle)
			for i := range 2 {
				if i == 1 {
					_, _ = db.Exec(`TRUNCATE effects`) // the option's id is one for all
				}
				said.take()
				testkit.Must(h(newMessage(fmt.Sprint(i))))
				got := once(said.take())
				testkit.Check(t, slices.Equal(got, v.want), "message %d: %q, want %q", i, got, v.want)
			}
			testkit.Equal(t, "keys", rows(t, db, "spillway_keys"), 2)
			if v.name == "with the first" { // a duplicate's is rolled back, and costs a look at what is recorded
				testkit.Must(h(newMessage("1")))
				got := once(said.take())[1:]
				testkit.Check(t, slices.Equal(got, []string{v.want[0], "text", "find", "ROLLBACK"}), "%q", got)
			}
		})
	}
}

// once leaves out what was said again at once: a connection may stand where another stood in memory, which had the
// statement prepared, and then the text is sent twice.
func once(said []string) []string { return slices.Compact(said) }

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
	case strings.HasPrefix(text, "INSERT INTO spillway_keys") && strings.Contains(text, "DO NOTHING"):
		return "enter"
	case strings.HasPrefix(text, "SELECT outputs, fingerprint"):
		return "find"
	}
	return text
}
