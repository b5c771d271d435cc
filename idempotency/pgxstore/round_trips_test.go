package pgxstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/idempotency/pgxstore"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Feature I2: a claim is a round trip for BEGIN and the key, and one for the proof and COMMIT. A handler that asks for a
// *sql.Tx pays two more.
func TestRoundTrips(t *testing.T) {
	const begins, commits = "begin + mark + enter", "proof; COMMIT"
	for _, v := range []struct {
		name, settings string
		handle         message.HandlerFunc
		want           []string
	}{
		{"pgx", "", writePgx, []string{begins, effect, commits}},
		{"sql", "", write, []string{begins, "begin", effect, "proof", "commit"}},
		{"nothing said", "", func(*message.Message) ([]*message.Message, error) { return nil, nil }, []string{begins, commits}},
		{"outputs", "", func(*message.Message) ([]*message.Message, error) { return []*message.Message{newMessage("")}, nil },
			[]string{begins, "proof; restore", "record", "COMMIT"}},
		{"fails", "", func(msg *message.Message) ([]*message.Message, error) {
			return nil, testkit.Err(pgxstore.Tx(msg.Context()).Exec(msg.Context(), `INSERT nonsense`))
		}, []string{begins, `INSERT nonsense`, "undo; ROLLBACK"}},
		{"described", "&default_query_exec_mode=cache_describe", writePgx, []string{begins, effect, commits}},
		{"text", "&default_query_exec_mode=exec", writePgx, []string{begins, effect, commits}},
		{"simple", "&default_query_exec_mode=simple_protocol", writePgx, []string{begins, effect, commits}},
	} {
		t.Run(v.name, func(t *testing.T) {
			db, said := open(t, v.settings)
			h := receiver(t, pipelining(t, db), idempotency.ReceiverConfig{}).Middleware(v.handle)
			for i := range 2 {
				said.take()
				_, err := h(newMessage(fmt.Sprint(i)))
				got := said.take()
				testkit.Check(t, slices.Equal(got, v.want) && (err != nil) == (v.name == "fails"), "message %d: %q, want %q: %v", i, got, v.want, err)
			}
		})
	}
}

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
	if one, two, ok := strings.Cut(text, "; "); ok {
		if strings.HasPrefix(two, "SELECT set_config") {
			two = "restore"
		}
		return short(one) + "; " + two
	}
	for begin, name := range map[string]string{
		"BEGIN ISOLATION LEVEL READ COMMITTED": "begin", "SAVEPOINT spillway_key": "mark", "RELEASE SAVEPOINT spillway_key": "proof",
		"ROLLBACK TO SAVEPOINT spillway_key": "undo", "INSERT INTO spillway_keys": "enter",
		"UPDATE spillway_keys SET outputs": "record",
	} {
		if strings.HasPrefix(text, begin) {
			return name
		}
	}
	return text
}
