package idempotency_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Features I1, I2, I3, I4, I6, I8: a store keeps what the matrix says of it, however the connections are set.
func TestSettings(t *testing.T) {
	t.Parallel()
	settings := map[string]database{"default_transaction_isolation=serializable": onPostgres}
	for _, mariaDB := range []string{
		"parseTime=true&interpolateParams=true&clientFoundRows=true&columnsWithAlias=true",
		"clientFoundRows=true&multiStatements=true",
		"sql_mode=%27ANSI%27&interpolateParams=true&time_zone=%27-05:00%27&charset=latin1",
		"sql_mode=%27NO_BACKSLASH_ESCAPES%27&interpolateParams=true",
		"tx_isolation=%27SERIALIZABLE%27&innodb_lock_wait_timeout=1",
	} {
		settings[mariaDB] = onMariaDB
	}
	for setting, d := range settings {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			c := newCell(t, d)
			if d.says == "mysql" {
				c.address = mysqltest.With(c.address, setting)
			} else {
				c.address += "&" + setting
			}
			c.db = c.open(t, c.address)
			for _, row := range []func(*cell){
				(*cell).together, (*cell).recordsOutputs, (*cell).versionsAtOnce, (*cell).leaseContract,
			} {
				row(c)
				c.exec(`DELETE FROM effects`, `DELETE FROM spillway_keys`)
			}
			c.purges()
		})
	}
}

func inBackground(f func() bool) <-chan bool {
	ch := make(chan bool, 1)
	go func() { ch <- f() }()
	return ch
}

var same = idempotency.Key{Consumer: "c", ID: "same"}

// Promise P1: a server without a service, a service that could be read as another one, and no database are errors that
// say what to do.
func TestNewStoreRefusesConfig(t *testing.T) {
	onDatabases(t, func(c *cell) {
		for service, want := range map[string]string{"": "the Service is empty", "a/b": "letters a to z", strings.Repeat("a", 101): "at most 100"} {
			_, err := c.newStore(c.Context(), c.db, service)
			if service == "" && c.driver == "sqlite" {
				testkit.Is(c, err, nil)
			} else if err == nil || !strings.Contains(err.Error(), want) {
				c.Errorf("%q: %v", service, err)
			}
		}
		testkit.Says(c, testkit.Err(c.newStore(c.Context(), nil, "shop")), "DB is nil")
		closed := c.open(c, c.address)
		_ = closed.Close()
		testkit.Says(c, testkit.Err(c.newStore(c.Context(), closed, "shop")), "closed")
	})
	testkit.Says(t, testkit.Err(idempotency.NewReceiver(nil, idempotency.ReceiverConfig{})), "store is nil")
}

// Decision 8, feature I1: a database that each connection would have for itself is refused, and so is a connection that
// changes the encoding of texts, since keys would not compare. TestUpgrade_requires has more of the first.
func TestNewStoreRefusesDatabase(t *testing.T) {
	for want, db := range map[string]*sql.DB{
		"no file":                   onSQLite.open(t, ":memory:"),
		"client_encoding is LATIN1": postgrestest.Open(t, postgrestest.Schema(t)+"&client_encoding=LATIN1"),
	} {
		testkit.Says(t, testkit.Err(idempotency.NewStore(t.Context(), db, "shop")), want)
	}
}

// The names of handlers and services cannot be put together to the same identity in two ways.
func TestConsumerIdentity(t *testing.T) {
	db := newCell(t, onSQLite).db
	for service, want := range map[string]map[string]string{
		"":     {"billing": "billing", "a/b": "/a/b", "": ""},
		"shop": {"billing": "shop/billing", "a/b": "shop/a/b"},
	} {
		store := testkit.Must(idempotency.NewStore(t.Context(), db, service))
		for handler, identity := range want {
			got := store.Consumer(handler)
			testkit.Check(t, got == identity, "%q, %q: %q", service, handler, got)
		}
	}
}
