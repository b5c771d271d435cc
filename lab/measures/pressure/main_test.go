package main

import (
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/leaks"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// Each phase has its lines, with the messages of both topics and the tables. What they say is not judged here.
func TestFigures(t *testing.T) {
	services.Need(t, "kafka", "postgres")
	var out strings.Builder
	const short = 2 * time.Second
	p := plan{phase: short, pinned: short, interval: short, rate: 50, keys: 10}
	testkit.NoError(t, p.run(t.Context(), &out))
	const line = "staged_per_s? ordered_per_s?"
	testkit.NoError(t, harness.Complete(out.String(), "phase=before "+line, "phase=pinned "+line,
		"phase=after staged_per_s ordered_per_s"))
	for _, table := range []string{"keys", "dead_letters", "parked", "delayed"} {
		testkit.Check(t, strings.Contains(out.String(), `"`+table), "no table of %s: %s", table, out.String())
	}
}
