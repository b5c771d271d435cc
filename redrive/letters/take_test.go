package letters_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Promise P4: a Take locks what it takes, and no letter that it only looks at: a Mark of another one does not wait for it.
func TestStore_selectiveTakeLocksNoOther(t *testing.T) {
	for _, on := range []database{postgresSchema, mysqlDatabase} {
		t.Run(on.Name, func(t *testing.T) {
			db := on.Create(t)()
			publish(t, storeOn(t, db), "orders.dlq", fixture.OfTwo(60)...)
			free := -1
			store := storeOn(t, beforeCommit(t, db, func() {
				free = -1
				rows, err := db.Query(`SELECT seq FROM spillway_dead_letters FOR UPDATE SKIP LOCKED`)
				if err != nil {
					t.Error(err)
					return
				}
				defer func() { _ = rows.Close() }()
				for free = 0; rows.Next(); free++ {
				}
				if err := rows.Err(); err != nil {
					t.Error(err)
				}
			}))
			taken, err := store.Take(t.Context(), letters.Filter{Handlers: []string{"b"}}, time.Hour, 10)
			if err != nil || len(taken) != 10 || free != 50 {
				t.Errorf("%d taken, %v; %d of 50 others free", len(taken), err, free)
			}
		})
	}
}

// Promise P4: on SQLite a Take waits for the writer only if there is something to take.
func TestStore_sqliteSelectiveTakeNeedsNoWriter(t *testing.T) {
	open := sqliteFile.Create(t)
	db := open()
	store := storeOn(t, db)
	publish(t, store, "orders.dlq", fixture.OfTwo(10)...)
	writer, err := open().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writer.Close() }()
	if _, err := writer.ExecContext(t.Context(), `BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	taken, err := store.Take(ctx, letters.Filter{Handlers: []string{"c"}}, time.Hour, 10)
	if err != nil || len(taken) != 0 {
		t.Errorf("%d taken, %v", len(taken), err)
	}
	if _, err := writer.ExecContext(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
}

// Decision 12: leases end by the database's clock, whatever that of a process says.
func TestStore_leasesByTheDatabasesClock(t *testing.T) {
	dsn := mysqltest.Database(t)
	at := func(shift time.Duration) *letters.Store { // a store whose database says that it is now and shift
		now := float64(time.Now().Add(shift).UnixMilli()) / 1000
		return storeOn(t, mysqltest.Open(t, mysqltest.With(dsn, fmt.Sprintf("timestamp=%.3f", now))))
	}
	publish(t, at(0), "orders.dlq", letter("1", "a"))
	for _, step := range []struct {
		shift time.Duration
		want  int
	}{{48 * time.Hour, 1}, {48*time.Hour + 30*time.Minute, 0}, {50 * time.Hour, 1}, {0, 0}} {
		taken, err := at(step.shift).Take(t.Context(), letters.Filter{}, time.Hour, 1)
		if err != nil || len(taken) != step.want {
			t.Fatalf("at %s: %d taken, %v, want %d", step.shift, len(taken), err, step.want)
		}
	}
}
