package delay_test

import (
	"database/sql"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/delay"
	"github.com/watermill-spillway/spillway/internal/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/poison/wmsql"
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

// What a handler puts is in the transaction that consumes its message: it is rolled back and committed with it.
func TestPut_inTransaction(t *testing.T) {
	for name, d := range map[string]struct {
		open  func(testing.TB) *sql.DB
		store func(*sql.DB) *delay.Store
	}{
		"postgres": {func(t testing.TB) *sql.DB { return postgrestest.Open(t, postgrestest.Schema(t)) }, delay.Postgres},
		"mariadb":  {func(t testing.TB) *sql.DB { return mysqltest.Open(t, mysqltest.Database(t)) }, delay.MySQL},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := d.open(t)
			store, out := d.store(db), &inbox{}
			relay, err := delay.NewRelay(delay.RelayConfig{Store: store, Publisher: out, Poll: 5 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			sub, err := wmsql.NewSubscriber(wmsql.SubscriberConfig{DB: db, ConsumerGroup: "billing", InitializeSchema: true, PollInterval: 10 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			pub, err := wmsql.NewPublisher(wmsql.PublisherConfig{DB: db})
			if err != nil {
				t.Fatal(err)
			}
			if err := pub.InitializeTopics("orders"); err != nil {
				t.Fatal(err)
			}
			router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
			if err != nil {
				t.Fatal(err)
			}
			router.AddPlugin(relay.Plugin)
			var tries atomic.Int64
			router.AddConsumerHandler("billing", "orders", sub, func(msg *message.Message) error {
				try := tries.Add(1)
				if err := store.Put(msg.Context(), "later", message.NewMessage(msg.UUID+string(rune('0'+try)), nil), 0); err != nil {
					return err
				}
				time.Sleep(50 * time.Millisecond) // a relay looks meanwhile
				if n := len(out.all()); n > 0 {
					t.Errorf("%d are published before the message is acked", n)
				}
				if try < 3 {
					return errors.New("rolled back")
				}
				return nil
			})
			done := make(chan error, 1)
			go func() { done <- router.Run(t.Context()) }()
			select {
			case <-router.Running():
			case err := <-done:
				t.Fatal(err)
			}
			if err := pub.Publish("orders", message.NewMessage("1-", []byte("{}"))); err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(30 * time.Second); len(out.all()) == 0 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			}
			time.Sleep(50 * time.Millisecond)
			if err := errors.Join(router.Close(), <-done, pub.Close()); err != nil {
				t.Error(err)
			}
			if got := out.all(); !slices.Equal(got, []string{"1-3"}) {
				t.Errorf("published: %v, of %d tries", got, tries.Load())
			}
			if waiting, err := store.Waiting(t.Context()); err != nil || len(waiting) != 0 {
				t.Error(waiting, err)
			}
		})
	}
}
