package delayed_test

import (
	"context"
	"database/sql"
	"errors"
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

// billing handles messages of the topic orders until the test ends.
func billing(t *testing.T, db *sql.DB, handler message.NoPublishHandlerFunc) (publish func(id string)) {
	t.Helper()
	sub := testkit.Must(wmsql.NewSubscriber(t.Context(), db, wmsql.SubscriberConfig{
		ConsumerGroup: "billing", PollInterval: 10 * time.Millisecond, NackBackoff: 10 * time.Millisecond,
	}))
	pub := testkit.Must(wmsql.NewPublisher(t.Context(), db, wmsql.PublisherConfig{}))
	testkit.NoError(t, pub.InitializeTopics("orders"))
	testkit.RunRouter(t, watermill.NopLogger{}, func(r *message.Router) {
		r.AddConsumerHandler("billing", "orders", sub, handler)
	})
	return func(id string) { testkit.NoError(t, pub.Publish("orders", message.NewMessage(id, []byte("{}")))) }
}

// waiting counts what waits in a store.
func waiting(t *testing.T, store *delayed.Store) (n int) {
	t.Helper()
	for _, w := range testkit.Must(store.Waiting(context.Background())) {
		n += w.Messages
	}
	return n
}

// What a handler puts is in the transaction that consumes its message: it is rolled back and committed with it.
func TestPut_inTransaction(t *testing.T) {
	for _, d := range databases.All[1:] {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			db := d.New(t)
			store := testkit.Must(delayed.NewStore(t.Context(), db, "shop"))
			var tries atomic.Int64
			publish := billing(t, db, func(msg *message.Message) error {
				err := store.Put(msg.Context(), "later", message.NewMessage(msg.UUID, nil), time.Hour)
				testkit.Equal(t, "what others see before the message is acked", waiting(t, store), 0)
				if tries.Add(1) < 3 {
					err = errors.Join(err, errors.New("rolled back"))
				}
				return err
			})
			publish("1")
			testkit.Eventually(t, "it is there", func() bool { return waiting(t, store) > 0 })
			testkit.Check(t, waiting(t, store) == 1 && tries.Load() == 3, "%d wait after %d tries", waiting(t, store),
				tries.Load())
		})
	}
}

// A Put that is the victim of a deadlock ended the message's transaction. On MySQL and MariaDB what is said after it
// would commit by itself: a handler that ignores the error is not taken at its word, and the message comes again.
func TestPut_deadlock(t *testing.T) {
	db := databases.MariaDB.New(t)
	store := testkit.Must(delayed.NewStore(t.Context(), db, "shop"))
	testkit.Must(db.Exec(`CREATE TABLE accounts (id INT PRIMARY KEY, n INT NOT NULL)`))
	testkit.Must(db.Exec(`INSERT INTO accounts VALUES (1, 0)`))
	var tries atomic.Int64
	publish := billing(t, db, func(msg *message.Message) error {
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
		err = victim(db, put)
		testkit.Check(t, mysql.Number(err) == mysql.Deadlock, "put ended with %v, want a deadlock", err)
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
	testkit.Check(t, waiting(t, store) == 2 && tries.Load() == 3, "%d wait after %d tries", waiting(t, store),
		tries.Load())
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
