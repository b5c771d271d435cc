// Package shop is a small service under test: a source, a database with effects, a store of dead letters, and outputs.
package shop

import (
	"context"
	"database/sql"
	"fmt"
	"github.com/watermill-spillway/spillway/middleware/outputs"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Shop is a source that outlives routers, a database with an effects table, a dead-letter store and the outputs.
type Shop struct {
	T       *testing.T
	Source  *gochannel.GoChannel
	DB      *sql.DB
	Letters *letters.Store
	Outs    *Outputs
}

// New returns a Shop. Its source keeps messages for later subscribers, if it is persistent.
func New(t *testing.T, persistent bool) *Shop {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "bench.db")+"?_pragma=busy_timeout(20000)")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`PRAGMA journal_mode=WAL; CREATE TABLE effects (id TEXT)`); err != nil {
		t.Fatal(err)
	}
	store, err := letters.NewStore(t.Context(), db, letters.Config{Service: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	b := &Shop{T: t, Source: gochannel.NewGoChannel(gochannel.Config{Persistent: persistent}, nil), DB: db, Letters: store,
		Outs: &Outputs{}}
	t.Cleanup(func() {
		if err := b.Source.Close(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// StaysOpen returns a subscriber that a router cannot close, so that the next router finds the source as it was.
func StaysOpen(sub message.Subscriber) message.Subscriber { return staysOpen{sub} }

type staysOpen struct{ message.Subscriber }

func (staysOpen) Close() error { return nil }

// Run starts a router with handler "billing" on "orders"; attach adds the protection. The returned function closes it.
func (b *Shop) Run(attach func(*message.Router), handle message.HandlerFunc) (stop func()) {
	b.T.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 20 * time.Second}, watermill.NopLogger{})
	if err != nil {
		b.T.Fatal(err)
	}
	attach(router)
	router.AddHandler("billing", "orders", StaysOpen(b.Source), "invoices", b.Outs, handle)
	done := make(chan error, 1)
	go func() { done <- router.Run(context.Background()) }()
	<-router.Running()
	return sync.OnceFunc(func() {
		if err := router.Close(); err != nil {
			b.T.Error(err)
		}
		if err := <-done; err != nil {
			b.T.Error(err)
		}
	})
}

// Publish publishes messages to the source.
func (b *Shop) Publish(messages ...*message.Message) {
	b.T.Helper()
	if err := b.Source.Publish("orders", messages...); err != nil {
		b.T.Fatal(err)
	}
}

// Apply writes the message's effect in the receiver's transaction, or without one where there is none.
func (b *Shop) Apply(msg *message.Message) error {
	const insert = `INSERT INTO effects (id) VALUES (?)`
	if tx := idempotency.Tx(msg.Context()); tx != nil {
		_, err := tx.Exec(insert, msg.UUID)
		return err
	}
	_, err := b.DB.Exec(insert, msg.UUID)
	return err
}

// Channel is the whole channel of a Shop, with waits short enough for tests.
func (b *Shop) Channel(change ...func(*spillway.Config)) *spillway.Channel {
	b.T.Helper()
	config := spillway.Config{
		Publisher:   b.Letters,
		Idempotency: KeysOf(b.T, b.DB),
		Retry:       middleware.RetryConfig{Attempts: 3, Backoff: middleware.Backoff{Initial: time.Millisecond}},
		Outputs: outputs.Config{Backoff: middleware.Backoff{Initial: time.Millisecond,
			Max: 5 * time.Millisecond}},
	}
	for _, f := range change {
		f(&config)
	}
	ch, err := spillway.New(context.Background(), config)
	if err != nil {
		b.T.Fatal(err)
	}
	return ch
}

// Count counts the rows of a table.
func (b *Shop) Count(table string) (n int) {
	b.T.Helper()
	if err := b.DB.QueryRow(`SELECT count(*) FROM ` + table).Scan(&n); err != nil {
		b.T.Fatal(err)
	}
	return n
}

// Effects returns the ids that took effect.
func (b *Shop) Effects() []string {
	b.T.Helper()
	rows, err := b.DB.Query(`SELECT id FROM effects ORDER BY id`)
	if err != nil {
		b.T.Fatal(err)
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			b.T.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// Waiting returns the letters.
func (b *Shop) Waiting() []letters.Letter {
	b.T.Helper()
	entries, err := b.Letters.List(context.Background(), letters.Filter{Limit: 1000})
	if err != nil {
		b.T.Fatal(err)
	}
	return entries
}

// Eventually polls a condition, and shows the Shop if it does not come true.
func (b *Shop) Eventually(what string, condition func() bool) {
	b.T.Helper()
	testkit.Eventually(b.T, what, condition, func() string {
		return fmt.Sprintf("effects %d, letters %d, outputs %v", len(b.Effects()), len(b.Waiting()), b.Outs.IDs())
	})
}

// Outputs is the publisher of the handler under test. It refuses as it is told and cannot be closed.
type Outputs struct {
	mu     sync.Mutex
	Taken  []*message.Message
	tried  []string
	Refuse func(*message.Message) error
	// Forward is called with what is taken, if it is set before anything is published.
	Forward func(*message.Message)
}

// Publish takes messages, until one is refused.
func (o *Outputs) Publish(_ string, messages ...*message.Message) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, msg := range messages {
		o.tried = append(o.tried, msg.UUID)
		if o.Refuse != nil {
			if err := o.Refuse(msg); err != nil {
				return err
			}
		}
		o.Taken = append(o.Taken, msg)
		if o.Forward != nil {
			o.Forward(msg)
		}
	}
	return nil
}

// Close does nothing.
func (o *Outputs) Close() error { return nil }

// SetRefuse sets which messages are refused.
func (o *Outputs) SetRefuse(refuse func(*message.Message) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.Refuse = refuse
}

// IDs returns the ids of what was taken, sorted.
func (o *Outputs) IDs() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var ids []string
	for _, msg := range o.Taken {
		ids = append(ids, msg.UUID)
	}
	slices.Sort(ids)
	return ids
}

// TriedIDs returns the ids of what was published, in order, also of what was refused.
func (o *Outputs) TriedIDs() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.tried)
}

// Numbered returns n messages.
func Numbered(n int) []*message.Message {
	messages := make([]*message.Message, n)
	for i := range messages {
		messages[i] = message.NewMessage(fmt.Sprintf("id-%04d", i), []byte(fmt.Sprintf(`{"n":%d}`, i)))
	}
	return messages
}

// KeysOf is the store of keys in db.
func KeysOf(t testing.TB, db *sql.DB) idempotency.Store {
	t.Helper()
	keys, err := idempotency.NewStore(t.Context(), db, "")
	if err != nil {
		t.Fatal(err)
	}
	return keys
}
