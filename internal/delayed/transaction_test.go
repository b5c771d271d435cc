package delayed_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/database/mysql"
	"github.com/watermill-spillway/spillway/internal/delayed"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

type inbox struct {
	mu  sync.Mutex
	ids []string
}

func (*inbox) Close() error { return nil }

func (b *inbox) Publish(_ string, messages ...*message.Message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, msg := range messages {
		b.ids = append(b.ids, msg.UUID)
	}
	return nil
}

func (b *inbox) all() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.ids)
}

// billing handles messages of the topic orders until the test ends.
func billing(t *testing.T, db *sql.DB, handler message.NoPublishHandlerFunc, plugins ...message.RouterPlugin) (publish func(ids ...string), stop func()) {
	t.Helper()
	sub, err := wmsql.NewSubscriber(t.Context(), db, wmsql.SubscriberConfig{
		ConsumerGroup: "billing", PollInterval: 10 * time.Millisecond, NackBackoff: 10 * time.Millisecond,
	})
	testkit.NoError(t, err)
	pub := testkit.Must(wmsql.NewPublisher(t.Context(), db, wmsql.PublisherConfig{}))
	testkit.NoError(t, pub.InitializeTopics("orders"))
	router := testkit.Must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
	router.AddPlugin(plugins...)
	router.AddConsumerHandler("billing", "orders", sub, handler)
	done := make(chan error, 1)
	go func() { done <- router.Run(context.Background()) }()
	stop = sync.OnceFunc(func() {
		testkit.Is(t, errors.Join(router.Close(), <-done, pub.Close()), nil)
	})
	t.Cleanup(stop)
	select {
	case <-router.Running():
	case err := <-done:
		t.Fatal(err)
	}
	return func(ids ...string) {
		t.Helper()
		for _, id := range ids {
			testkit.NoError(t, pub.Publish("orders", message.NewMessage(id, []byte("{}"))))
		}
	}, stop
}

func storeOn(t testing.TB, db *sql.DB) *delayed.Store {
	t.Helper()
	store := testkit.Must(delayed.NewStore(t.Context(), db, "shop"))
	return store
}

// What a handler puts is in the transaction that consumes its message: it is rolled back and committed with it.
func TestPut_inTransaction(t *testing.T) {
	for _, d := range databases.All[1:] {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			db := d.New(t)
			store, out := storeOn(t, db), &inbox{}
			relay := testkit.Must(delayed.NewRelay(store, out, delayed.RelayConfig{Poll: 5 * time.Millisecond}))
			var tries atomic.Int64
			publish, stop := billing(t, db, func(msg *message.Message) error {
				try := tries.Add(1)
				if err := store.Put(msg.Context(), "later", message.NewMessage(msg.UUID+string(rune('0'+try)), nil), 0); err != nil {
					return err
				}
				time.Sleep(50 * time.Millisecond) // a relay looks meanwhile
				n := len(out.all())
				testkit.Check(t, n <= 0, "%d are published before the message is acked", n)
				if try < 3 {
					return errors.New("rolled back")
				}
				return nil
			}, relay.Plugin)
			publish("1-")
			testkit.Eventually(t, "it is published", func() bool { return len(out.all()) > 0 })
			time.Sleep(50 * time.Millisecond)
			stop()
			if got := out.all(); !slices.Equal(got, []string{"1-3"}) {
				t.Errorf("published: %v, of %d tries", got, tries.Load())
			}
			waiting, err := store.Waiting(t.Context())
			testkit.Check(t, err == nil && len(waiting) == 0, "%v %v", waiting, err)
		})
	}
}

// A Put that is the victim of a deadlock ended the message's transaction. On MySQL and MariaDB what is said after it
// would commit by itself: a handler that ignores the error is not taken at its word, and the message comes again.
func TestPut_deadlock(t *testing.T) {
	db := databases.MariaDB.New(t)
	store := storeOn(t, db)
	testkit.Must(db.Exec(`CREATE TABLE accounts (id INT PRIMARY KEY, n INT NOT NULL)`))
	testkit.NoError(t, testkit.Err(db.Exec(`INSERT INTO accounts VALUES (1, 0)`)))
	var tries atomic.Int64
	publish, _ := billing(t, db, func(msg *message.Message) error {
		try := tries.Add(1)
		joined, err := chain.WriteJoined(msg.Context(), db, func(tx *sql.Tx) error {
			_, err := tx.Exec(`UPDATE accounts SET n = n + 1 WHERE id = 1`)
			return err
		})
		testkit.Check(t, err == nil && joined, "the handler's own write: joined %t, %v", joined, err)
		put := func() error { return store.Put(msg.Context(), "later", message.NewMessage("put", nil), time.Hour) }
		if try > 1 {
			return put()
		}
		if err := victim(db, put); mysql.Number(err) != mysql.Deadlock {
			t.Errorf("put ended with %v, want a deadlock", err)
		}
		return nil
	})
	publish("1")
	applied := func() (n int) {
		testkit.NoError(t, db.QueryRow(`SELECT n FROM accounts WHERE id = 1`).Scan(&n))
		return n
	}
	testkit.Eventually(t, "it comes again and takes effect", func() bool { return applied() > 0 })
	publish("2")
	testkit.Eventually(t, "the next one takes effect", func() bool { return applied() > 1 })
	if waiting, err := store.Waiting(t.Context()); err != nil || len(waiting) != 1 || waiting[0].Messages != 2 || tries.Load() != 3 {
		t.Errorf("%+v, %v, after %d tries", waiting, err, tries.Load())
	}
}

// victim lets put meet another transaction that has the gap where the row belongs, waits for the row of the account,
// and has written more: MySQL ends the lighter one.
func victim(db *sql.DB, put func() error) (err error) {
	other, err := db.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return err
	}
	waits := make(chan error, 1)
	defer func() {
		if also := errors.Join(<-waits, other.Rollback()); also != nil {
			err = errors.Join(also, err)
		}
	}()
	for i := range 30 {
		if _, err := other.Exec(`INSERT INTO accounts VALUES (?, 0)`, -1-i); err != nil {
			waits <- nil
			return err
		}
	}
	if _, err := other.Exec(`SELECT seq FROM spillway_delayed FOR UPDATE`); err != nil {
		waits <- nil
		return err
	}
	go func() {
		_, err := other.Exec(`UPDATE accounts SET n = 100 WHERE id = 1`)
		waits <- err
	}()
	time.Sleep(50 * time.Millisecond) // whichever waits second, the lighter one goes
	return put()
}
