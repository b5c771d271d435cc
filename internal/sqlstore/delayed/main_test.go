package delayed

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/child"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
)

func TestMain(m *testing.M) {
	child.Main(order.relay)
	_ = mysql.SetLogger(&mysql.NopLogger{}) // of connections that tests cut
	goleak.VerifyTestMain(m)
}

const patience = testkit.Patience

var eventually = testkit.Eventually

// openStore is a store with its table, in a pool of its own.
func openStore(t testing.TB, d databases.Database, address string) *Store {
	t.Helper()
	return on(t, d.Open(t, address))
}

func on(t testing.TB, db *sql.DB) *Store {
	t.Helper()
	return testkit.Must(NewStore(t.Context(), db, "shop"))
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
	relay := NewRelay(s, to, config)
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{cancel, make(chan struct{})}
	go func() {
		defer close(r.ended)
		testkit.Is(t, relay.Run(ctx), nil)
	}()
	t.Cleanup(r.stop)
	return r
}

func put(t testing.TB, s *Store, topic string, msg *message.Message, after time.Duration) {
	t.Helper()
	testkit.NoError(t, s.Put(context.Background(), topic, msg, after))
}

// fill puts n messages that are due into topic, in one transaction.
func fill(t testing.TB, s *Store, topic string, n int) {
	t.Helper()
	testkit.NoError(t, s.db.Write(t.Context(), func(tx *sql.Tx) error { // which may take its time
		for i := range n {
			if _, err := tx.Exec(s.insert, newRecord(s.service, topic, newMessage(numberedID(i))).args(0)...); err != nil {
				return err
			}
		}
		return nil
	}))
}

func newMessage(id string) *message.Message { return message.NewMessage(id, []byte("payload of "+id)) }

func numberedID(i int) string { return fmt.Sprintf("id-%05d", i) }

// outbox is a publisher that keeps what it takes. before may refuse it.
type outbox struct {
	before func(topic string, messages []*message.Message) error
	after  func()

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
	if o.after != nil {
		o.after()
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

func wantOnce(t testing.TB, got []string, n int) {
	t.Helper()
	found := counts(got)
	testkit.Check(t, len(got) == n && len(found) == n && found[numberedID(0)] == 1 && found[numberedID(n-1)] == 1,
		"%d messages, %d of them different, want %d once each", len(got), len(found), n)
}

// kept is how many rows there are.
func kept(t testing.TB, s *Store) (n int) {
	t.Helper()
	testkit.NoError(t, s.db.DB().QueryRow(`SELECT COUNT(*) FROM spillway_delayed`).Scan(&n))
	return n
}

var errDown = errors.New("the broker is down")
