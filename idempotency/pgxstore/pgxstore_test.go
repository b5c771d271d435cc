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
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq" // registers "postgres"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/idempotency/pgxstore"
	"github.com/watermill-spillway/spillway/internal/postgres/postgrestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

// open opens an empty database whose connections are traced.
func open(t *testing.T, settings string) (*sql.DB, *trace) {
	t.Helper()
	config, err := pgx.ParseConfig(postgrestest.Schema(t) + settings)
	if err != nil {
		t.Fatal(err)
	}
	tracer := new(trace)
	config.Tracer = tracer
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1) // what a claim leaves behind meets the next
	if _, err := db.Exec(`CREATE TABLE effects (id text NOT NULL UNIQUE)`); err != nil {
		t.Fatal(err)
	}
	return db, tracer
}

func receiver(t *testing.T, config idempotency.ReceiverConfig) *idempotency.Receiver {
	t.Helper()
	config.Consumer = "billing"
	r, err := idempotency.NewReceiver(config)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const effect = `INSERT INTO effects VALUES ($1)`

func write(msg *message.Message) ([]*message.Message, error) {
	_, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(), effect, msg.UUID)
	return nil, err
}

func newMessage(id string) *message.Message { return message.NewMessage(id, []byte("payload")) }

func rows(t *testing.T, db *sql.DB, table string) (n int) {
	t.Helper()
	if err := db.QueryRow(`SELECT count(*) FROM ` + table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Feature I2: a claim is one round trip, of BEGIN and the key, or of BEGIN, the key and the handler's first statement. Where
// the connection cannot do that, it goes as text.
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
		optimistic     bool
		handle         message.HandlerFunc
		want           []string
	}{
		{"one", "", false, write, []string{"begin + insert", effect, "COMMIT"}},
		{"with the first", "", true, write, []string{"begin + insert + " + effect, "COMMIT"}},
		{"before a query", "", true, reads, []string{"begin + insert", query, effect, "COMMIT"}},
		{"before what has no arguments", "", true, says(`UPDATE effects SET id = 'b'`), []string{"begin + insert", `UPDATE effects SET id = 'b'`, "COMMIT"}},
		{"before what takes locks", "", true, says(`SELECT pg_advisory_xact_lock($1)`, 1), []string{"begin + insert", `SELECT pg_advisory_xact_lock($1)`, "COMMIT"}},
		{"before an option", "", true, says(effect, pgx.QueryExecModeExec, "a"), []string{"begin + insert", effect, "COMMIT"}},
		{"before names", "", true, says(`INSERT INTO effects VALUES (@id)`, pgx.NamedArgs{"id": "a"}), []string{"begin + insert", `INSERT INTO effects VALUES (@id)`, "COMMIT"}},
		{"nothing said", "", true, func(*message.Message) ([]*message.Message, error) { return nil, nil }, []string{"begin + insert", "COMMIT"}},
		{"described", "&default_query_exec_mode=cache_describe", true, write, []string{"begin + insert + " + effect, "COMMIT"}},
		{"text", "&default_query_exec_mode=exec", false, write, []string{"text", effect, "COMMIT"}},
		{"simple", "&default_query_exec_mode=simple_protocol", true, write, []string{"text", effect, "COMMIT"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			db, said := open(t, v.settings)
			h := receiver(t, idempotency.ReceiverConfig{Store: pgxstore.Postgres(db), Optimistic: v.optimistic}).Middleware(v.handle)
			for i := range 2 {
				if i == 1 {
					_, _ = db.Exec(`TRUNCATE effects`) // the option's id is one for all
				}
				said.take()
				if _, err := h(newMessage(fmt.Sprint(i))); err != nil {
					t.Fatal(err)
				}
				if got := said.take(); !slices.Equal(got, v.want) {
					t.Errorf("message %d: %q, want %q", i, got, v.want)
				}
			}
			if n := rows(t, db, "spillway_keys"); n != 2 {
				t.Errorf("%d keys", n)
			}
		})
	}
}

// Feature I1: keys are taken for new ones, until one is not: that is an error in the server's log, and there is one a minute
// at the most.
func TestHopes(t *testing.T) {
	db, said := open(t, "")
	h := receiver(t, idempotency.ReceiverConfig{Store: pgxstore.Postgres(db)}).Middleware(write)
	for i, want := range []struct {
		id   string
		said []string
	}{
		{"1", []string{"begin + insert", effect, "COMMIT"}},
		{"1", []string{"begin + insert", "text", "find", "ROLLBACK"}}, // the text begins with the end of what failed
		{"1", []string{"begin + enter", "find", "ROLLBACK"}},
		{"2", []string{"begin + enter", effect, "COMMIT"}},
	} {
		said.take()
		if _, err := h(newMessage(want.id)); err != nil {
			t.Fatal(err)
		}
		if got := said.take(); !slices.Equal(got, want.said) {
			t.Errorf("delivery %d: %q, want %q", i, got, want.said)
		}
	}
	if n := rows(t, db, "effects"); n != 2 {
		t.Errorf("%d effects", n)
	}
}

// Promises P1, P7: the first statement's error is its own, the message is not applied, and comes again in full.
func TestFirstStatementFails(t *testing.T) {
	for name, v := range map[string]struct {
		text  string
		args  []any
		state string
		says  string
	}{
		"own duplicate": {effect, []any{"taken"}, "23505", "effects"},
		"syntax":        {`INSERT nonsense`, []any{1}, "42601", "nonsense"},
		"no table":      {`INSERT INTO nowhere VALUES ($1)`, []any{1}, "42P01", "nowhere"},
		"arguments":     {effect, []any{"a", "b"}, "", "argument"},
		"type":          {effect, []any{struct{}{}}, "", "encode"},
		"too large":     {`INSERT INTO effects VALUES ($1::int4)`, []any{int64(1) << 40}, "", "int4"},
		"division":      {`INSERT INTO effects VALUES (1 / $1::int)`, []any{0}, "22012", "division"},
	} {
		t.Run(name, func(t *testing.T) {
			db, _ := open(t, "")
			r := receiver(t, idempotency.ReceiverConfig{Store: pgxstore.Postgres(db), Optimistic: true})
			if _, err := db.Exec(`INSERT INTO effects VALUES ('taken')`); err != nil {
				t.Fatal(err)
			}
			fails := func(msg *message.Message) ([]*message.Message, error) {
				_, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(), v.text, v.args...)
				return nil, err
			}
			for range 2 { // statements that fail may be prepared
				_, err := r.Middleware(fails)(newMessage("m"))
				var answer *pgconn.PgError
				if errors.As(err, &answer); err == nil || strings.Contains(err.Error(), "claim key") || v.state != "" && (answer == nil || answer.Code != v.state) || !strings.Contains(err.Error(), v.says) {
					t.Errorf("%v", err)
				}
				if n := rows(t, db, "spillway_keys"); n != 0 {
					t.Errorf("%d keys", n)
				}
			}
			savepoint := func(msg *message.Message) ([]*message.Message, error) { // a handler that means to go on
				tx := idempotency.Tx(msg.Context())
				if _, err := tx.Exec(`SAVEPOINT mine`); err != nil {
					return nil, err
				}
				if _, err := tx.Exec(v.text, v.args...); err == nil {
					t.Error("no error")
				}
				if _, err := tx.Exec(`ROLLBACK TO mine`); err != nil {
					return nil, err
				}
				return write(msg)
			}
			for range 2 {
				if _, err := r.Middleware(savepoint)(newMessage("m")); err != nil {
					t.Error(err)
				}
			}
			if e, k := rows(t, db, "effects"), rows(t, db, "spillway_keys"); e != 2 || k != 1 {
				t.Errorf("%d effects, %d keys", e, k)
			}
		})
	}
}

// Promises P1, P7, feature I2: what happened to a connection while nobody used it is an error, or nothing, and never a
// message that is half applied.
func TestConnections(t *testing.T) {
	for name, spoil := range map[string]string{
		"deallocated": `DEALLOCATE ALL`, "discarded": `DISCARD ALL`, "strict": `SET default_transaction_isolation = 'serializable'`,
		"killed": `SELECT pg_terminate_backend(pg_backend_pid())`,
	} {
		for _, optimistic := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", optimistic ", optimistic), func(t *testing.T) {
				db, _ := open(t, "")
				r := receiver(t, idempotency.ReceiverConfig{Store: pgxstore.Postgres(db), Optimistic: optimistic})
				for i := range 4 {
					id := fmt.Sprint(i)
					_, err := r.Middleware(write)(newMessage(id))
					if err != nil { // once
						_, err = r.Middleware(write)(newMessage(id))
					}
					if err != nil {
						t.Fatal(i, err)
					}
					_, _ = db.Exec(spoil)
				}
				if name == "discarded" { // it forgets the search path of nobody: that is the connection's own
					t.Log(rows(t, db, "effects"))
				}
				if e, k := rows(t, db, "effects"), rows(t, db, "spillway_keys"); e != 4 || k != 4 {
					t.Errorf("%d effects, %d keys", e, k)
				}
			})
		}
	}
}

// Feature I2: a handler that acks its message ends its context, and not its first statement.
func TestAckedFirst(t *testing.T) {
	db, _ := open(t, "")
	h := receiver(t, idempotency.ReceiverConfig{Store: pgxstore.Postgres(db), Optimistic: true}).Middleware(func(msg *message.Message) ([]*message.Message, error) {
		ctx := context.WithoutCancel(msg.Context())
		msg.Ack()
		_, err := idempotency.Tx(ctx).ExecContext(ctx, `INSERT INTO effects SELECT $1::text FROM pg_sleep($2)`, msg.UUID, 1.2)
		return nil, err
	})
	for _, id := range []string{"1", "1"} {
		ctx, cancel := context.WithCancel(context.Background())
		msg := newMessage(id)
		msg.SetContext(ctx)
		go func() { <-msg.Acked(); cancel() }()
		if _, err := h(msg); err != nil {
			t.Error(err)
		}
		cancel()
	}
	if e, k := rows(t, db, "effects"), rows(t, db, "spillway_keys"); e != 1 || k != 1 {
		t.Errorf("%d effects, %d keys", e, k)
	}
}

// Promise P3: a handler that goes on with a context of its own, when its message has gone away, is let end. So is one that says
// nothing.
func TestGoneAway(t *testing.T) {
	db, _ := open(t, "")
	r := receiver(t, idempotency.ReceiverConfig{Store: pgxstore.Postgres(db), Optimistic: true})
	for _, says := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		msg := newMessage(fmt.Sprint(says))
		msg.SetContext(ctx)
		_, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			cancel()
			if !says {
				return nil, nil
			}
			_, err := idempotency.Tx(msg.Context()).ExecContext(context.WithoutCancel(msg.Context()), `INSERT INTO effects SELECT $1::text FROM pg_sleep(0.1)`, "a")
			return nil, err
		})(msg)
		if err != nil {
			t.Error(says, err)
		}
	}
	if e, k := rows(t, db, "effects"), rows(t, db, "spillway_keys"); e != 1 || k != 2 {
		t.Errorf("%d effects, %d keys", e, k)
	}
}

// Promise P3: who waits for a key goes when its message does, whatever context the statement has; and a statement that ends
// its wait by itself is an error of its own.
func TestWaitEnds(t *testing.T) {
	db, _ := open(t, "")
	db.SetMaxOpenConns(3)
	first := idempotency.Postgres(db)
	h := receiver(t, idempotency.ReceiverConfig{Store: pgxstore.Postgres(db), Optimistic: true}).Middleware
	claim, err := first.Claim(t.Context(), idempotency.Entry{Key: idempotency.Key{Consumer: "billing", ID: "m"}})
	if err != nil {
		t.Fatal(err)
	}
	short := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(t.Context(), 50*time.Millisecond)
	}
	for name, deliver := range map[string]func() error{
		"message's": func() error {
			ctx, cancel := short()
			defer cancel()
			msg := newMessage("m")
			msg.SetContext(ctx)
			_, err := h(func(msg *message.Message) ([]*message.Message, error) {
				_, err := idempotency.Tx(msg.Context()).Exec(effect, "m")
				return nil, err
			})(msg)
			return err
		},
		"statement's": func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			msg := newMessage("m")
			msg.SetContext(ctx)
			_, err := h(func(msg *message.Message) ([]*message.Message, error) {
				ctx, cancel := short()
				defer cancel()
				_, err := idempotency.Tx(msg.Context()).ExecContext(ctx, effect, "m")
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				return nil, err
			})(msg)
			return err
		},
	} {
		if err := deliver(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `claim key "m" of consumer "billing": postgres: wait for the key`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := claim.Commit(nil); err != nil {
		t.Fatal(err)
	}
	own := errors.New("own")
	for id, want := range map[string]error{"m": nil, "n": own} { // nobody holds it: a duplicate is absorbed, a new one fails with its own error
		_, err := h(func(msg *message.Message) ([]*message.Message, error) {
			ctx, cancel := context.WithCancel(msg.Context())
			cancel()
			_, err := idempotency.Tx(msg.Context()).ExecContext(ctx, effect, id)
			if err == nil {
				t.Error("no error")
			}
			return nil, own
		})(newMessage(id))
		if err != want {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := h(write)(newMessage("m")); err != nil {
		t.Error(err)
	}
	if e, k := rows(t, db, "effects"), rows(t, db, "spillway_keys"); e != 0 || k != 1 {
		t.Errorf("%d effects, %d keys", e, k)
	}
}

// Feature I2: a first statement that changes the settings goes after the key, and the settings are put back for the commit.
func TestSettings(t *testing.T) {
	db, said := open(t, "")
	h := receiver(t, idempotency.ReceiverConfig{Store: pgxstore.Postgres(db), Optimistic: true}).Middleware(func(msg *message.Message) ([]*message.Message, error) {
		_, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(), `SELECT set_config('search_path', $1, true)`, "elsewhere")
		return []*message.Message{newMessage("out")}, err
	})
	for range 2 {
		if out, err := h(newMessage("m")); err != nil || len(out) != 1 {
			t.Error(out, err)
		}
	}
	if all := strings.Join(said.take(), "\n"); strings.Contains(all, "+ SELECT set_config") || rows(t, db, "spillway_keys") != 1 {
		t.Error(all)
	}
}

// Feature I1: on another driver's connections it is the store of package idempotency. A nil *sql.DB is an error in time.
func TestOtherDriver(t *testing.T) {
	db, err := sql.Open("postgres", postgrestest.Schema(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.Exec(`CREATE TABLE effects (id text NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	for _, optimistic := range []bool{false, true} {
		r := receiver(t, idempotency.ReceiverConfig{Store: pgxstore.Postgres(db), Optimistic: optimistic})
		for range 3 {
			if _, err := r.Middleware(write)(newMessage(fmt.Sprint(optimistic))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if e, k := rows(t, db, "effects"), rows(t, db, "spillway_keys"); e != 2 || k != 2 {
		t.Errorf("%d effects, %d keys", e, k)
	}
	if _, err := idempotency.NewReceiver(idempotency.ReceiverConfig{Store: pgxstore.Postgres(nil), Consumer: "c", Optimistic: true}); err == nil || !strings.Contains(err.Error(), "nil") {
		t.Error(err)
	}
}

// Bad input: what cannot be optimistic says so, and what to do.
func TestOptimisticConfig(t *testing.T) {
	db, _ := open(t, "")
	for want, config := range map[string]idempotency.ReceiverConfig{
		"set it to pgxstore.Postgres(db)": {Store: idempotency.Postgres(db), Optimistic: true},
		"Optimistic and Lease are set":    {Store: pgxstore.Postgres(db), Optimistic: true, Lease: 5e9},
	} {
		if _, err := idempotency.NewReceiver(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
	}
}
