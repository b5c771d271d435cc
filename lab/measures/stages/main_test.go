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
	services.Need(t, "kafka", "postgres", "mariadb")
	p := plan{
		rounds: 1, shares: []share{{percent: 0, messages: 200}, {percent: 10, messages: 100}}, stock: 2 * time.Second, publishes: 10, warm: 100,
		latenessRounds: 1, lateness: 20, drainRounds: 1, drains: []draining{{together, 0, false, 20}, {together, 0, true, 20}}, stays: 2 * time.Second, moves: 20, failing: 200, fails: time.Second,
	}
	live := "live_in_flight watermill_per_s spillway_per_s ratio share_of_failure_free? confirmed_publish_us"
	want := []string{live + " if_each_waited", live, live + " if_each_waited failing_percent", live + " failing_percent", "jitter_ms p50 p99", "jitter_ms p50 p99", "jitter_ms p50 p99"}
	for range 2 {
		want = append(want, "per_s cpu_us allocs")
	}
	for range 6 {
		want = append(want, "per_s")
	}
	want = append(want, "failing_percent letters_per_s")
	testkit.NoError(t, harness.Measures(t.Context(), p.run, want...))
}
