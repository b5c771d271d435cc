package main

import (
	"encoding/json"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Both sides are measured to the end, and a line says what is asked for. What it says is not judged here.
func TestFigures(t *testing.T) {
	services.Postgres(t)
	services.MySQL(t)
	var out strings.Builder
	p := plan{databases: []string{"postgres", "mariadb"}, backlogs: []int{60}, batches: []int{1, 10}, rounds: 1, messages: 50}
	testkit.NoError(t, p.run(t.Context(), &out))
	var measured []string
	failing := 0
	for line := range strings.Lines(out.String()) {
		var figure struct {
			DB           string
			Backlog      int
			Stock        float64 `json:"stock_own_tx_per_s"`
			Ours         float64 `json:"spillway_one_tx_per_s"`
			Figure       string
			Ratio, Batch float64
			Left         float64 `json:"messages_per_s"`
		}
		testkit.NoError(t, json.Unmarshal([]byte(line), &figure))
		if figure.Figure == "sql_under_failure" && figure.Left > 0 {
			failing++
			continue
		}
		testkit.Check(t, figure.Figure == "sql_one_tx" && figure.Backlog == 60 && figure.Stock > 0 && figure.Ours > 0 &&
			figure.Ratio > 0 && figure.Batch != 0, "%s", line)
		measured = append(measured, figure.DB)
	}
	testkit.Check(t, failing == 2*len(percents), "%d figures of failing messages", failing)
	got := strings.Join(measured, " ")
	testkit.Check(t, got == "postgres postgres mariadb mariadb", "measured %s", got)
}
