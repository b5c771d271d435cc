package main

import (
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/leaks"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// All sides are measured to the end, and the lines say what is asked for. What they say is not judged here.
func TestFigures(t *testing.T) {
	services.Need(t, "kafka", "postgres")
	p := plan{rounds: 1, letters: 40}
	testkit.NoError(t, p.parse("4", "200x100ms"))
	compared := "concurrency raw_publish_per_s per_s ratio?"
	testkit.NoError(t, harness.Measures(t.Context(), p.run, compared, compared, compared, compared, "rate per_s letters fastest_second"))
}
