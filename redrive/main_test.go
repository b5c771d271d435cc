package redrive_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const deadline = testkit.Patience

func openDB(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// database is one kind of database that a store can be on. create makes an empty one, and returns what opens it: each
// time as another process would.
type database struct {
	name   string
	create func(t testing.TB) (open func() *sql.DB)
}

var sqliteFile = database{"SQLite", func(t testing.TB) func() *sql.DB {
	path := filepath.Join(t.TempDir(), "letters.db")
	return func() *sql.DB { return openDB(t, path) }
}}

var postgresSchema = database{"PostgreSQL", func(t testing.TB) func() *sql.DB {
	address := postgrestest.Schema(t)
	return func() *sql.DB { return postgrestest.Open(t, address) }
}}

var mysqlDatabase = database{"MySQL", func(t testing.TB) func() *sql.DB {
	dsn := mysqltest.Database(t)
	return func() *sql.DB { return mysqltest.Open(t, dsn) }
}}

// onEach runs a test on all databases that are there.
func onEach(t *testing.T, test func(*testing.T, database)) {
	t.Helper()
	for _, d := range []database{sqliteFile, postgresSchema, mysqlDatabase} {
		t.Run(d.name, func(t *testing.T) { test(t, d) })
	}
}

func (d database) newStore(t testing.TB) *redrive.Store {
	t.Helper()
	return storeOn(t, d.create(t)())
}

func storeOn(t testing.TB, db *sql.DB) *redrive.Store {
	t.Helper()
	store, err := redrive.NewStore(redrive.StoreConfig{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func newStore(t testing.TB) *redrive.Store { return sqliteFile.newStore(t) }

var failedAt = time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)

// letter is a dead letter of orders and billing, unless change says otherwise.
func letter(id, payload string, change ...func(*poison.Letter)) *message.Message {
	msg := message.NewMessage(id, []byte(payload))
	msg.Metadata.Set("tenant", "blue")
	l := poison.Letter{
		Original: msg,
		Origin:   poison.Origin{Topic: "orders", Handler: "billing", MessageID: id},
		Failure: poison.Failure{
			Class: classify.ClassPermanent, Reason: "no_such_customer", Description: "customer " + id + " is unknown",
			Type: "*shop.Error", StackHash: "abc", Attempts: 5, FirstFailedAt: failedAt, LastFailedAt: failedAt.Add(time.Second),
			History: []classify.Attempt{{At: failedAt, Class: classify.ClassPermanent, Error: "customer is unknown"}},
		},
	}
	for _, f := range change {
		f(&l)
	}
	return l.Encode()
}

func redrivenTimes(n int) func(*poison.Letter) { return func(l *poison.Letter) { l.Redrive.Count = n } }
func from(topic string) func(*poison.Letter) {
	return func(l *poison.Letter) { l.Origin.Topic = topic }
}

func publish(t testing.TB, pub message.Publisher, topic string, messages ...*message.Message) {
	t.Helper()
	if err := pub.Publish(topic, messages...); err != nil {
		t.Fatal(err)
	}
}

func list(t testing.TB, s *redrive.Store, f redrive.Filter) []redrive.Entry {
	t.Helper()
	entries, err := s.List(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func wantCount(t testing.TB, s *redrive.Store, f redrive.Filter, want int) {
	t.Helper()
	if n, err := s.Count(t.Context(), f); err != nil || n != want {
		t.Fatalf("count of %+v: %d, %v, want %d", f, n, err, want)
	}
}

func status(s ...redrive.Status) redrive.Filter { return redrive.Filter{Statuses: s} }

// outbox is a publisher that keeps what it takes. before may refuse, panic, or do what a consumer would.
type outbox struct {
	mu     sync.Mutex
	before func(topic string, msg *message.Message) error
	taken  []published
}

type published struct {
	topic string
	msg   *message.Message
	at    time.Time
}

func (o *outbox) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		if o.before != nil {
			if err := o.before(topic, msg); err != nil {
				return err
			}
		}
		o.mu.Lock()
		o.taken = append(o.taken, published{topic, msg, time.Now()})
		o.mu.Unlock()
	}
	return nil
}

func (o *outbox) Close() error { return nil }

func (o *outbox) all() []published {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]published(nil), o.taken...)
}

func (o *outbox) ids() map[string]int {
	ids := make(map[string]int)
	for _, p := range o.all() {
		ids[p.msg.UUID]++
	}
	return ids
}

var errDown = errors.New("the broker is down")

func refuse(string, *message.Message) error { return errDown }

var eventually = testkit.Eventually

func letters(n int) []*message.Message {
	messages := make([]*message.Message, n)
	for i := range messages {
		messages[i] = letter(fmt.Sprintf("id-%d", i), "{}")
	}
	return messages
}

var orders = redrive.DrainConfig{Allow: []string{"orders"}}

func drain(t testing.TB, s *redrive.Store, live message.Publisher, c redrive.DrainConfig) redrive.Report {
	t.Helper()
	report, err := s.Drain(context.Background(), live, c)
	if err != nil {
		t.Fatal(err)
	}
	return report
}
