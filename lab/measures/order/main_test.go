package main

import (
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/leaks"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// All sides are measured to the end, and the lines say what is asked for. What they say is not judged here.
func TestFigures(t *testing.T) {
	services.Need(t, "kafka", "postgres")
	p := plan{rounds: 1, keys: 10, lanes: 4, work: time.Millisecond, one: 5, many: 100, parked: 50, stocks: []int{20}, costs: 30}
	const one, parked, costs = "lanes=1 per_s", "keys parked_per_s drained_per_s", "parked=20 look_up_ns? park_us drain_us take_over_ms"
	testkit.NoError(t, harness.Measures(t.Context(), p.run, "figure=database", one, "lanes=4 per_s times_one", one,
		"lanes=4 per_s times_one", "lanes=4 per_s of_failure_free parked", parked, parked, costs, costs))
}
