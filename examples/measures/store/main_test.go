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

// Every question is asked on each database, and a line says what is asked for. What it says is not judged here.
func TestFigures(t *testing.T) {
	services.Postgres(t)
	services.MySQL(t)
	var out strings.Builder
	p := plan{databases: []string{"postgres", "mariadb", "sqlite"}, rows: 300, asks: 2, round: 20 * time.Millisecond}
	testkit.NoError(t, p.run(t.Context(), &out))
	lines := map[string]int{}
	for line := range strings.Lines(out.String()) {
		var f struct {
			Figure, DB, What string
			Rows, Writers    int
			P50, P99         float64
			Per              float64 `json:"per_s"`
		}
		testkit.NoError(t, json.Unmarshal([]byte(line), &f))
		testkit.Check(t, f.DB != "" && (f.Figure != "store_ms" || f.What != "" && f.P50 > 0 && f.P99 >= f.P50) &&
			(f.Figure != "store_put_per_s" || f.Writers != 0 && f.Per > 0), "%s", line)
		lines[f.DB+" "+f.Figure]++
	}
	for _, db := range p.databases {
		testkit.Check(t, lines[db+" store_ms"] == len(questions(nil, 1)) && lines[db+" store_put_per_s"] == 2,
			"%s: %v", db, lines)
	}
}
