package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/idempotency/pgxstore"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// writePgx is write through pgx.
func writePgx(msg *message.Message) ([]*message.Message, error) {
	_, err := pgxstore.Tx(msg.Context()).Exec(msg.Context(), effect, msg.UUID)
	return nil, err
}

// Features I1, I2, I4: what is written through pgx commits with the key and the outputs. The handler of a duplicate is
// not called. Savepoints are the handler's own.
func TestPgxTx(t *testing.T) {
	db, _ := open(t, "")
	r, calls := receiver(t, pipelining(t, db), idempotency.ReceiverConfig{}), 0
	h := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		calls++
		ctx, tx := msg.Context(), pgxstore.Tx(msg.Context())
		err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
			return errors.Join(testkit.Err(inner.Exec(ctx, effect, "undone")), errors.New("own"))
		})
		testkit.Says(t, err, "own")
		testkit.NoError(t, pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error { return testkit.Err(inner.Exec(ctx, effect, "kept")) }))
		var n int
		testkit.NoError(t, tx.QueryRow(ctx, `SELECT count(*) FROM effects`).Scan(&n))
		testkit.Equal(t, "seen", n, 1)
		rows := testkit.Must(tx.Query(ctx, `SELECT id FROM effects`))
		testkit.Must(pgx.CollectRows(rows, pgx.RowTo[string]))
		return []*message.Message{newMessage("")}, testkit.Err(tx.CopyFrom(ctx, pgx.Identifier{"effects"}, []string{"id"},
			pgx.CopyFromRows([][]any{{"a"}, {"b"}})))
	})
	first := testkit.Must(h(newMessage("m")))
	again := testkit.Must(h(newMessage("m")))
	testkit.Check(t, calls == 1 && len(again) == 1 && first[0].UUID == again[0].UUID, "%d calls, %v", calls, again)
	wants(t, db, 3, 1)
}

// Promises P1, P7: however a handler ends the transaction, or goes on in one that has ended or failed, there is an error,
// and nothing of it stays; except what it committed in SQL, with the key, and then the error is permanent.
func TestPgxEnds(t *testing.T) {
	boom := errors.New("boom")
	do := func(texts ...string) func(context.Context, pgx.Tx) error {
		return func(ctx context.Context, tx pgx.Tx) (err error) {
			for _, text := range texts {
				_, err = tx.Exec(ctx, text)
			}
			return err
		}
	}
	more := `INSERT INTO effects VALUES ('more')`
	for name, v := range map[string]struct {
		end       func(context.Context, pgx.Tx) error
		stays     bool
		permanent bool
	}{
		"Commit":          {func(ctx context.Context, tx pgx.Tx) error { _ = tx.Commit(ctx); return nil }, false, true},
		"Rollback":        {func(ctx context.Context, tx pgx.Tx) error { _ = tx.Rollback(ctx); return nil }, false, true},
		"COMMIT":          {do(`COMMIT`, more), true, true},
		"COMMIT; BEGIN":   {do(`COMMIT`, `BEGIN`, more), true, true},
		"ROLLBACK":        {do(`ROLLBACK`), false, true},
		"ROLLBACK; BEGIN": {do(`ROLLBACK`, `BEGIN`, more), false, true},
		"AND CHAIN":       {do(`ROLLBACK AND CHAIN`, more), false, true},
		"swallowed": {func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, `INSERT INTO nowhere VALUES (1)`)
			_, _ = tx.Exec(ctx, more)
			return nil
		}, false, false},
	} {
		for outputs := range 2 {
			for _, own := range []error{nil, boom} {
				t.Run(fmt.Sprint(name, outputs, own), func(t *testing.T) {
					db, _ := open(t, "")
					r := receiver(t, pipelining(t, db), idempotency.ReceiverConfig{})
					_, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
						if _, err := writePgx(msg); err != nil {
							return nil, err
						}
						testkit.NoError(t, v.end(msg.Context(), pgxstore.Tx(msg.Context())))
						return []*message.Message{newMessage("")}[:outputs], own
					})(newMessage("m"))
					class := (*classify.Classifier)(nil).Classify(err).Class
					testkit.Check(t, err != nil && (class == classify.ClassPermanent) == (v.permanent && (v.stays || own == nil)),
						"judged %s: %v", class, err)
					effects, keys := 0, 0
					if v.stays {
						effects, keys = 1, 1
						if name == "COMMIT" {
							effects = 2 // the second commits by itself
						}
					}
					wants(t, db, effects, keys)
					testkit.Must(r.Middleware(writePgx)(newMessage("m2")))
				})
			}
		}
	}
}

// Promises P1, P7: a handler that leaves while a goroutine of its own is in a statement leaves no transaction in the
// pool, and no key locked. What comes later is refused.
func TestLeftInStatement(t *testing.T) {
	boom := errors.New("boom")
	for name, leave := range map[string]func(*message.Message) error{
		"error": func(*message.Message) error { return boom },
		"nack":  func(msg *message.Message) error { msg.Nack(); return nil },
		"panic": func(*message.Message) error { panic(boom) },
	} {
		for _, through := range []string{"pgx", "database/sql"} {
			t.Run(name+through, func(t *testing.T) {
				db, _ := open(t, "")
				db.SetMaxOpenConns(3)
				r := receiver(t, pipelining(t, db), idempotency.ReceiverConfig{})
				var stray sync.WaitGroup
				var late pgx.Tx
				func() {
					defer func() { _ = recover() }()
					_, _ = r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
						late = pgxstore.Tx(msg.Context())
						statement := func() {
							_, _ = late.Exec(context.Background(), `INSERT INTO effects SELECT $1::text FROM pg_sleep(0.1)`, "stray")
						}
						if through == "database/sql" {
							tx := idempotency.Tx(msg.Context())
							statement = func() { _, _ = tx.Exec(`INSERT INTO effects SELECT $1::text FROM pg_sleep(0.1)`, "stray") }
						}
						on := make(chan struct{})
						stray.Go(func() { close(on); statement() })
						<-on
						return nil, leave(msg)
					})(newMessage("m"))
				}()
				stray.Wait()
				testkit.Is(t, testkit.Err(late.Exec(t.Context(), effect, "late")), sql.ErrTxDone)
				testkit.Is(t, late.QueryRow(t.Context(), effect, "late").Scan(), sql.ErrTxDone)
				testkit.Is(t, late.SendBatch(t.Context(), new(pgx.Batch)).Close(), sql.ErrTxDone)
				testkit.Equal(t, "connections are in use", db.Stats().InUse, 0)
				testkit.Must(r.Middleware(write)(newMessage("m")))
				wants(t, db, 1, 1)
			})
		}
	}
}

// Feature I2: a handler that acks its message ends its context, and not its transaction.
func TestAckedFirst(t *testing.T) {
	db, _ := open(t, "")
	h := receiver(t, pipelining(t, db), idempotency.ReceiverConfig{}).Middleware(func(msg *message.Message) ([]*message.Message, error) {
		tx, gone := pgxstore.Tx(msg.Context()), msg.Context().Done()
		msg.Ack()
		<-gone
		return nil, testkit.Err(tx.Exec(context.Background(), effect, msg.UUID))
	})
	for range 2 {
		ctx, cancel := context.WithCancel(context.Background())
		msg := newMessage("1")
		msg.SetContext(ctx)
		go func() { <-msg.Acked(); cancel() }()
		if _, err := h(msg); err != nil {
			t.Error(err)
		}
		if rows(t, db, "effects") == 1 {
			cancel()
			break
		}
	}
	wants(t, db, 1, 1)
}

// Feature I3: a key that was taken over from a lease is claimed as idempotency.NewStore does, and pgx has its transaction.
func TestTakenOver(t *testing.T) {
	db, _ := open(t, "")
	db.SetMaxOpenConns(2)
	store := pipelining(t, db)
	lease := testkit.Must(store.Lease(t.Context(), idempotency.Entry{Key: idempotency.Key{Consumer: "shop/billing", ID: "m"}}, 1e9))
	testkit.NoError(t, lease.Release(t.Context()))
	testkit.Must(receiver(t, store, idempotency.ReceiverConfig{}).Middleware(writePgx)(newMessage("m")))
	wants(t, db, 1, 1)
}
