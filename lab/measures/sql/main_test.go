package main

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Both sides are measured to the end, and a line says what is asked for. What it says is not judged here.
func TestFigures(t *testing.T) {
	services.Need(t, "postgres", "mariadb")
	p := plan{databases: []string{"postgres", "mariadb"}, backlogs: []int{60}, batches: []int{1, 10}, rounds: 1, messages: 50}
	var want []string
	for _, db := range p.databases {
		one := "figure=sql_one_tx backlog=60 batch stock_own_tx_per_s spillway_one_tx_per_s ratio db=" + db
		want = append(want, one, one)
		want = append(want, slices.Repeat([]string{"figure=sql_under_failure messages_per_s db=" + db}, len(percents))...)
	}
	testkit.NoError(t, harness.Measures(t.Context(), p.run, want...))
}
