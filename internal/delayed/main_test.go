package delayed

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		child()
		return
	}
	_ = flag.Set("rapid.checks", "40")      // on each database
	_ = mysql.SetLogger(&mysql.NopLogger{}) // of connections that tests cut
	goleak.VerifyTestMain(m)
}

const patience = testkit.Patience

var eventually = testkit.Eventually

// testDatabase is one that a store can be in.
type testDatabase struct {
	name, driver string
	// create makes an empty one, and tells where it is.
	create func(testing.TB) (address string)
}

var databases = []testDatabase{
	{"sqlite", "sqlite", func(t testing.TB) string {
		return "file:" + filepath.Join(t.TempDir(), "test.db") + "?_pragma=journal_mode(wal)&_pragma=busy_timeout(2000)&_pragma=synchronous(normal)"
	}},
	{"postgres", "pgx", postgrestest.Schema},
	{"mariadb", "mysql", mysqltest.Database},
}

// open opens a pool as a process of its own would.
func (d testDatabase) open(t testing.TB, address string) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.driver, address)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxIdleConns(10)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// newStore is a store with its table, in a pool of its own.
func (d testDatabase) newStore(t testing.TB, address string) *Store {
	t.Helper()
	return on(t, d.open(t, address))
}

func on(t testing.TB, db *sql.DB) *Store {
	t.Helper()
	s, err := NewStore(t.Context(), db, "shop")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func onEach(t *testing.T, test func(t *testing.T, d testDatabase, address string)) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			test(t, d, d.create(t))
		})
	}
}

// running is a relay that runs until stop, or the end of the test.
type running struct {
	cancel context.CancelFunc
	ended  chan struct{}
}

func (r *running) stop() {
	r.cancel()
	<-r.ended
}

func start(t testing.TB, s *Store, to message.Publisher, config RelayConfig) *running {
	t.Helper()
	relay, err := NewRelay(s, to, config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{cancel, make(chan struct{})}
	go func() {
		defer close(r.ended)
		if err := relay.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(r.stop)
	return r
}

func put(t testing.TB, s *Store, topic string, msg *message.Message, after time.Duration) {
	t.Helper()
	if err := s.Put(context.Background(), topic, msg, after); err != nil {
		t.Fatal(err)
	}
}

func newMessage(id string) *message.Message { return message.NewMessage(id, []byte("payload of "+id)) }

func numberedID(i int) string { return fmt.Sprintf("id-%05d", i) }

// outbox is a publisher that keeps what it takes. before may refuse it.
type outbox struct {
	before func(topic string, messages []*message.Message) error

	mu    sync.Mutex
	taken []published
	calls int
}

type published struct {
	topic string
	msg   *message.Message
}

func (*outbox) Close() error { return nil }

func (o *outbox) Publish(topic string, messages ...*message.Message) error {
	if o.before != nil {
		if err := o.before(topic, messages); err != nil {
			return err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls++
	for _, msg := range messages {
		o.taken = append(o.taken, published{topic, msg})
	}
	return nil
}

func (o *outbox) all() []published {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.taken)
}

func (o *outbox) ids() (ids []string) {
	for _, p := range o.all() {
		ids = append(ids, p.msg.UUID)
	}
	return ids
}

func counts(ids []string) map[string]int {
	found := make(map[string]int)
	for _, id := range ids {
		found[id]++
	}
	return found
}

func idsUpTo(n int) map[string]int {
	want := make(map[string]int)
	for i := range n {
		want[numberedID(i)] = 1
	}
	return want
}

func wantOnce(t testing.TB, got []string, n int) {
	t.Helper()
	if found := counts(got); !maps.Equal(found, idsUpTo(n)) {
		t.Errorf("%d messages, %d of them different, want %d once each", len(got), len(found), n)
	}
}

// kept is how many rows there are.
func kept(t testing.TB, s *Store) (n int) {
	t.Helper()
	if err := s.db.DB().QueryRow(`SELECT COUNT(*) FROM spillway_delayed`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

var errDown = errors.New("the broker is down")
