package services

import (
	"database/sql"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
)

// A missing PgBouncer is a hole in the tests: in CI it fails them.
func TestMissingPgBouncer(t *testing.T) {
	unset(t)
	t.Setenv("PATH", t.TempDir())
	was := sbin
	sbin = nil
	t.Cleanup(func() { sbin = was })
	ask := func(t testing.TB) { PgBouncer(t, "postgres://u:p@127.0.0.1:1/d") }
	if got := try(ask); got.failed != "" || !strings.Contains(got.skipped, "install pgbouncer") {
		t.Errorf("at a developer's: %+v", got)
	}
	t.Setenv("CI", "true")
	if got := try(ask); got.skipped != "" || !strings.Contains(got.failed, "install pgbouncer") {
		t.Errorf("in CI: %+v", got)
	}
	t.Setenv("SPILLWAY_EMBEDDED", "1")
	if got := try(ask); got.failed != "" || got.skipped == "" {
		t.Errorf("embedded: %+v", got)
	}
}

// In transaction mode two clients of PgBouncer take turns on one connection to the server.
func TestPgBouncer(t *testing.T) {
	db, err := sql.Open("pgx", PgBouncer(t, Postgres(t), "pool_mode = transaction")+"&default_query_exec_mode=exec")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	sessions := map[int]bool{}
	for range 2 {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		var session int
		if err := conn.QueryRowContext(t.Context(), `SELECT pg_backend_pid()`).Scan(&session); err != nil {
			t.Fatal(err)
		}
		sessions[session] = true
	}
	if len(sessions) != 1 {
		t.Errorf("two clients have %d sessions of the server", len(sessions))
	}
}
