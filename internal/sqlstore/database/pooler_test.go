package database_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// Decision 14: behind a pooler in transaction mode prepared statements are refused at the start, with the remedy.
func TestPoolerIsNoticed(t *testing.T) {
	behind := services.PgBouncer(t, postgrestest.Schema(t), "pool_mode = transaction", "default_pool_size = 5")
	var starts sync.WaitGroup
	for range 3 {
		starts.Go(func() { refused(t, testkit.Err(database.Detect(t.Context(), postgrestest.Open(t, behind)))) })
	}
	starts.Wait()
	alone := services.PgBouncer(t, postgrestest.Schema(t), "pool_mode = transaction")
	refused(t, testkit.Err(database.Detect(t.Context(), postgrestest.Open(t, alone))))
}

func refused(t *testing.T, err error) {
	t.Helper()
	var state *pgconn.PgError
	if err == nil || !strings.Contains(err.Error(), "default_query_exec_mode=exec") || strings.Contains(err.Error(), "none of") ||
		!errors.As(err, &state) || state.Code != "42P05" && state.Code != "26000" {
		t.Errorf("behind a pooler: %v", err)
	}
}

// Decision 14: in session mode a pooler is as good as none. TestPooler of wmsql has the remedies.
func TestPoolerIsServed(t *testing.T) {
	address := services.PgBouncer(t, postgrestest.Schema(t), "pool_mode = session")
	for range 3 {
		found := testkit.Must(database.Detect(t.Context(), postgrestest.Open(t, address)))
		testkit.Equal(t, "kind", found.Kind(), database.Postgres)
	}
}

// Decision 14: the question about sessions waits for no connection that the pool does not have.
func TestPoolOfOneConnection(t *testing.T) {
	for _, most := range []int{1, 2} {
		db := postgrestest.Open(t, postgrestest.Schema(t))
		db.SetMaxOpenConns(most)
		if most == 2 { // a handler has the other one
			conn := testkit.Must(db.Conn(t.Context()))
			defer func() { _ = conn.Close() }()
		}
		testkit.Is(t, testkit.Err(database.Detect(t.Context(), db)), nil)
	}
}

// Decision 14: an error of the database is said as it is, and not taken for that of another kind of database.
func TestDetectSaysTheError(t *testing.T) {
	address := strings.Replace(postgrestest.Schema(t), "spillway:spillway@", "spillway:wrong@", 1)
	_, err := database.Detect(t.Context(), postgrestest.Open(t, address))
	testkit.Check(t, err != nil && strings.Contains(err.Error(), "28P01") && !strings.Contains(err.Error(), "none of"),
		"%v", err)
}
