package spillway_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

func TestMain(m *testing.M) {
	// A router whose Run fails at start-up, as one test wants, leaves this goroutine of its own behind.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/message.(*Router).watchAllHandlersStopped.func1"))
}

// bench is a source that outlives routers, a database with an effects table, a dead-letter store and the outputs.
type bench struct {
	t       *testing.T
	source  *gochannel.GoChannel
	db      *sql.DB
	letters *letters.Store
	outs    *outputs
}

func newBench(t *testing.T, persistent bool) *bench {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "bench.db")+"?_pragma=busy_timeout(20000)")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`PRAGMA journal_mode=WAL; CREATE TABLE effects (id TEXT)`); err != nil {
		t.Fatal(err)
	}
	store, err := letters.NewStore(t.Context(), db, letters.StoreConfig{Service: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, source: gochannel.NewGoChannel(gochannel.Config{Persistent: persistent}, nil), db: db, letters: store, outs: &outputs{}}
	t.Cleanup(func() {
		if err := b.source.Close(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// staysOpen is a subscriber that a router cannot close, so that the next router finds the source as it was.
type staysOpen struct{ message.Subscriber }

func (staysOpen) Close() error { return nil }

// run starts a router with handler "billing" on "orders"; attach adds the protection. The returned function closes it.
func (b *bench) run(attach func(*message.Router), handle message.HandlerFunc) (stop func()) {
	b.t.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 20 * time.Second}, watermill.NopLogger{})
	if err != nil {
		b.t.Fatal(err)
	}
	attach(router)
	router.AddHandler("billing", "orders", staysOpen{b.source}, "invoices", b.outs, handle)
	done := make(chan error, 1)
	go func() { done <- router.Run(context.Background()) }()
	<-router.Running()
	return sync.OnceFunc(func() {
		if err := router.Close(); err != nil {
			b.t.Error(err)
		}
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	})
}

func (b *bench) publish(messages ...*message.Message) {
	b.t.Helper()
	if err := b.source.Publish("orders", messages...); err != nil {
		b.t.Fatal(err)
	}
}

// apply writes the message's effect in the receiver's transaction, or without one where there is none.
func (b *bench) apply(msg *message.Message) error {
	const insert = `INSERT INTO effects (id) VALUES (?)`
	if tx := idempotency.Tx(msg.Context()); tx != nil {
		_, err := tx.Exec(insert, msg.UUID)
		return err
	}
	_, err := b.db.Exec(insert, msg.UUID)
	return err
}

// count counts the rows of a table.
func (b *bench) count(table string) (n int) {
	b.t.Helper()
	if err := b.db.QueryRow(`SELECT count(*) FROM ` + table).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

func (b *bench) effects() []string {
	b.t.Helper()
	rows, err := b.db.Query(`SELECT id FROM effects ORDER BY id`)
	if err != nil {
		b.t.Fatal(err)
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			b.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

func (b *bench) waiting() []letters.Letter {
	b.t.Helper()
	entries, err := b.letters.List(context.Background(), letters.Filter{Limit: 1000})
	if err != nil {
		b.t.Fatal(err)
	}
	return entries
}

func (b *bench) eventually(what string, condition func() bool) {
	b.t.Helper()
	testkit.Eventually(b.t, what, condition, func() string {
		return fmt.Sprintf("effects %d, letters %d, outputs %v", len(b.effects()), len(b.waiting()), b.outs.ids())
	})
}

// outputs is the publisher of the handler under test. It refuses as it is told and cannot be closed.
type outputs struct {
	mu     sync.Mutex
	taken  []*message.Message
	tried  []string
	refuse func(*message.Message) error
	// forward is called with what is taken, if it is set before anything is published.
	forward func(*message.Message)
}

func (o *outputs) Publish(_ string, messages ...*message.Message) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, msg := range messages {
		o.tried = append(o.tried, msg.UUID)
		if o.refuse != nil {
			if err := o.refuse(msg); err != nil {
				return err
			}
		}
		o.taken = append(o.taken, msg)
		if o.forward != nil {
			o.forward(msg)
		}
	}
	return nil
}

func (o *outputs) Close() error { return nil }

func (o *outputs) setRefuse(refuse func(*message.Message) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refuse = refuse
}

func (o *outputs) ids() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var ids []string
	for _, msg := range o.taken {
		ids = append(ids, msg.UUID)
	}
	slices.Sort(ids)
	return ids
}

func (o *outputs) triedIDs() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.tried)
}

func numbered(n int) []*message.Message {
	messages := make([]*message.Message, n)
	for i := range messages {
		messages[i] = message.NewMessage(fmt.Sprintf("id-%04d", i), []byte(fmt.Sprintf(`{"n":%d}`, i)))
	}
	return messages
}

// keysOf is the store of keys in db.
func keysOf(t testing.TB, db *sql.DB) idempotency.Store {
	t.Helper()
	keys, err := idempotency.NewStore(t.Context(), db, idempotency.StoreConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}
