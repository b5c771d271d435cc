package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every side is measured to the end, and a line says what is asked for. What it says is not judged here.
func TestFigures(t *testing.T) {
	services.Postgres(t)
	services.MySQL(t)
	var out strings.Builder
	p := plan{databases: []string{"postgres", "mariadb", "sqlite"}, rounds: 1, round: 20 * time.Millisecond, keys: 2_000, few: 100, claims: 20}
	testkit.NoError(t, p.run(t.Context(), &out))
	var measured []string
	for line := range strings.Lines(out.String()) {
		var f struct {
			Figure, DB, Driver, Mode string
			Store                    string
			Consumers, Keys          int
			Own                      float64 `json:"handler_own_tx_per_s"`
			With                     float64 `json:"with_receiver_per_s"`
			Claim                    float64 `json:"claim_us"`
			During                   float64 `json:"ratio_during_purge"`
			Ratio                    float64
		}
		testkit.NoError(t, json.Unmarshal([]byte(line), &f))
		switch f.Figure {
		case "idempotency":
			testkit.Check(t, f.Mode == "transaction" && f.Consumers != 0 && f.Own > 0 && f.With > 0 && f.Ratio > 0,
				"%s", line)
			name := f.DB + " " + f.Driver
			if f.Store == "pgxstore" {
				name += " " + f.Store
			}
			measured = append(measured, name)
		case "idempotency_growth":
			testkit.Check(t, f.Claim > 0 && (f.Keys != 2_000 || f.Ratio > 0 && f.During > 0), "%s", line)
			measured = append(measured, "growth")
		}
	}
	const want = "postgres pgx pgxstore,postgres pgx pgxstore,postgres pgx,postgres pgx,postgres lib/pq,mariadb go-sql-driver,mariadb go-sql-driver,sqlite modernc,growth,growth"
	got := strings.Join(measured, ",")
	testkit.Check(t, got == want, "measured %s", got)
}
