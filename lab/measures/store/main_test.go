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

// Every question is asked on each database, and a line says what is asked for. What it says is not judged here.
func TestFigures(t *testing.T) {
	services.Need(t, "postgres", "mariadb")
	p := plan{databases: []string{"postgres", "mariadb", "sqlite"}, rows: 300, asks: 2, round: 20 * time.Millisecond}
	var want []string
	for _, db := range p.databases {
		put := "figure=store_put_per_s writers per_s db=" + db
		want = append(want, put, put)
		for _, q := range questions(nil, 1) {
			testkit.Check(t, q.what != "", "a question without words")
			want = append(want, "figure=store_ms p50 p99 db="+db)
		}
	}
	testkit.NoError(t, harness.Measures(t.Context(), p.run, want...))
}
