package main

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every side is measured to the end, and a line says what is asked for. What it says is not judged here.
func TestFigures(t *testing.T) {
	services.Need(t, "postgres", "mariadb")
	p := plan{databases: []string{"postgres", "mariadb", "sqlite"}, rounds: 1, round: 20 * time.Millisecond, keys: 2_000, few: 100, claims: 20}
	var want []string
	for _, side := range []string{"postgres driver=pgx store=pgxstore", "postgres driver=pgx store=pgxstore",
		"postgres driver=pgx", "postgres driver=pgx", "postgres driver=lib/pq", "mariadb driver=go-sql-driver",
		"mariadb driver=go-sql-driver", "sqlite driver=modernc"} {
		want = append(want, "mode=transaction consumers handler_own_tx_per_s with_receiver_per_s ratio db="+side)
	}
	want = append(want, "figure=idempotency_growth claim_us", "keys=2000 claim_us ratio ratio_during_purge")
	testkit.NoError(t, harness.Measures(t.Context(), p.run, want...))
}
