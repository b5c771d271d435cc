package idempotency_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Features I1, I2, I4, I6: MySQL keeps what the matrix says of a Store, however the connections are set.
func TestMySQLStore(t *testing.T) {
	for name, settings := range map[string]string{
		"defaults":                         "parseTime=false",
		"all switches":                     "parseTime=true&interpolateParams=true&clientFoundRows=true&columnsWithAlias=true",
		"clientFoundRows, multiStatements": "clientFoundRows=true&multiStatements=true",
		"ANSI":                             "sql_mode=%27ANSI%27&interpolateParams=true",
		"NO_BACKSLASH_ESCAPES":             "sql_mode=%27NO_BACKSLASH_ESCAPES%27&interpolateParams=true",
		"latin1":                           "charset=latin1",
		"SERIALIZABLE":                     "tx_isolation=%27SERIALIZABLE%27",
		"short waits":                      "innodb_lock_wait_timeout=1",
	} {
		t.Run(name, func(t *testing.T) {
			c := newCell(t, onMariaDB)
			c.db = c.open(t, mysqltest.With(c.address, settings))
			for _, row := range []func(*cell){(*cell).together, (*cell).recordsOutputs, (*cell).failedVersion} {
				row(c)
				c.exec(`DELETE FROM effects`, `DELETE FROM spillway_keys`)
			}
		})
	}
}

func inBackground(f func() bool) <-chan bool {
	ch := make(chan bool, 1)
	go func() { ch <- f() }()
	return ch
}

var same = idempotency.Key{Consumer: "c", ID: "same"}

// Decision 8: waiting for another process ends with the context too.
func TestSQLiteOtherProcess(t *testing.T) {
	process := newCell(t, onSQLite)
	here, there := storeOn(process.db), storeOn(process.open(t, process.address))
	c := testkit.Must(
		there.Claim(context.Background(), idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: "m1"}}))
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := here.Claim(ctx, idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: "m2"}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err) // it ended while the other process holds on
	}
	testkit.NoError(t, c.Release())
	c, err := here.Claim(context.Background(), idempotency.Entry{Key: idempotency.Key{Consumer: "c", ID: "m2"}})
	testkit.Require(t, err == nil, "the gate stayed locked: %v", err)
	_ = c.Release()
}
