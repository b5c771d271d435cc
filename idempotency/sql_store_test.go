package idempotency_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
)

// Promise P1, feature I1: two services with a handler of one name in one database each apply a message. The same service
// absorbs it. Without services in the key the second service would absorb what the first one applied.
func TestServices(t *testing.T) { onDatabases(t, (*cell).services) }

func (c *cell) services() {
	of := func(service string) message.HandlerFunc {
		store, err := c.newStore(c.Context(), c.db, idempotency.StoreConfig{Service: service})
		if err != nil {
			c.Fatal(err)
		}
		return c.receiverOn(store, idempotency.ReceiverConfig{}).Middleware(c.write)
	}
	c.applies(of("shop"), newMessage("m1"), newMessage("m1"))
	c.applies(of("stock"), newMessage("m1"))
	c.applies(of("stock"), newMessage("m1"))
	c.rows(2, 2)
}

// Feature I1: processes that start at the same time on an empty database share one table, and one of them applies a key.
func TestNewStoreAtOnce(t *testing.T) {
	onDatabases(t, func(c *cell) {
		var committed atomic.Int64
		stores := make([]idempotency.Store, 5)
		dbs := make([]*sql.DB, len(stores))
		for i := range dbs {
			dbs[i] = c.open(c, c.address)
		}
		atOnce(c.T, len(stores), func(i int) (err error) {
			stores[i], err = c.newStore(c.Context(), dbs[i], idempotency.StoreConfig{Service: "shop"})
			return err
		})
		atOnce(c.T, len(stores), func(i int) error {
			first, err := claimOnce(stores[i], same)
			if first {
				committed.Add(1)
			}
			return err
		})
		if n := committed.Load(); n != 1 {
			t.Fatalf("%d claims committed the key, want 1", n)
		}
	})
}

// Promise P1: a server without a service, a service that could be read as another one, and no database are errors that say
// what to do.
func TestNewStoreRefusesConfig(t *testing.T) {
	onDatabases(t, func(c *cell) {
		for service, want := range map[string]string{"": "the Service is empty", "a/b": "letters a to z", strings.Repeat("a", 101): "at most 100"} {
			_, err := c.newStore(c.Context(), c.db, idempotency.StoreConfig{Service: service})
			if service == "" && c.driver == "sqlite" {
				if err != nil {
					c.Error(err)
				}
			} else if err == nil || !strings.Contains(err.Error(), want) {
				c.Errorf("%q: %v", service, err)
			}
		}
		if _, err := c.newStore(c.Context(), nil, idempotency.StoreConfig{Service: "shop"}); err == nil || !strings.Contains(err.Error(), "DB is nil") {
			c.Error(err)
		}
		closed := c.open(c, c.address)
		_ = closed.Close()
		if _, err := c.newStore(c.Context(), closed, idempotency.StoreConfig{Service: "shop"}); err == nil || !strings.Contains(err.Error(), "closed") {
			c.Error(err)
		}
	})
	if _, err := idempotency.NewReceiver(nil, idempotency.ReceiverConfig{}); err == nil || !strings.Contains(err.Error(), "store is nil") {
		t.Error(err)
	}
}

// Feature I1, promise P1: a table that is not ours, or on which keys could not be kept apart, is refused.
func TestNewStoreRefusesTable(t *testing.T) {
	for _, v := range []struct {
		open             func(testing.TB) *sql.DB
		definition, want string
	}{
		{openWithEffects, `(consumer, id, outputs, applied_at)`, "primary key"},
		{openPostgres, `(consumer text, id text, outputs bytea, applied_at bigint)`, "primary key"},
		{openMySQL, `(consumer VARBINARY(255), id VARBINARY(255), outputs LONGBLOB, applied_at BIGINT)`, "primary key"},
		{openMySQL, `(consumer VARBINARY(255), id VARBINARY(255), outputs LONGBLOB, applied_at BIGINT, PRIMARY KEY (consumer, id)) ENGINE=MyISAM`, "MyISAM"},
		{openMySQL, `(consumer VARCHAR(255), id VARBINARY(255), outputs LONGBLOB, applied_at BIGINT, PRIMARY KEY (consumer, id))`, "consumer"},
		{openMySQL, `(consumer VARBINARY(255), id VARBINARY(64), outputs LONGBLOB, applied_at BIGINT, PRIMARY KEY (consumer, id))`, "VARBINARY(255) or longer"},
	} {
		db := v.open(t)
		if _, err := db.Exec(`CREATE TABLE spillway_keys ` + v.definition); err != nil {
			t.Fatal(err)
		}
		refuses(t, db, v.want)
	}
}

// Decision 8, feature I1: a database that each connection would have for itself is refused, and so is a connection that
// changes the encoding of texts, since keys would not compare.
func TestNewStoreRefusesDatabase(t *testing.T) {
	for _, dsn := range []string{":memory:", "", "file::memory:?cache=shared", "file:x?mode=memory&cache=shared"} {
		db, err := sql.Open("sqlite", dsn)
		if err != nil {
			t.Fatal(err)
		}
		refuses(t, db, "no file")
		_ = db.Close()
	}
	refuses(t, postgrestest.Open(t, postgrestest.Schema(t)+"&client_encoding=LATIN1"), "client_encoding is LATIN1")
}

func refuses(t *testing.T, db *sql.DB, want string) {
	t.Helper()
	if _, err := idempotency.NewStore(t.Context(), db, idempotency.StoreConfig{Service: "shop"}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("want an error with %q, got %v", want, err)
	}
}

// The names of handlers and services cannot be put together to the same identity in two ways.
func TestConsumerIdentity(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "keys.db"))
	for service, want := range map[string]map[string]string{
		"":     {"billing": "billing", "a/b": "/a/b", "": ""},
		"shop": {"billing": "shop/billing", "a/b": "shop/a/b"},
	} {
		store, err := idempotency.NewStore(t.Context(), db, idempotency.StoreConfig{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		for handler, identity := range want {
			if got := store.Consumer(handler); got != identity {
				t.Errorf("%q, %q: %q", service, handler, got)
			}
		}
	}
}
