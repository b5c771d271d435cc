package main

import (
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/examples/internal/leaks"
	"github.com/watermill-spillway/spillway/examples/measures/harness"
	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// The sides in Go are measured to the end, and the lines say what is asked for. What they say is not judged here.
func TestFigures(t *testing.T) {
	services.Kafka(t)
	var out strings.Builder
	err := (plan{}).run(t.Context(), &out)
	testkit.Require(t, err != nil && strings.Contains(err.Error(), "-rounds"), "no round counts: %v", err)
	testkit.NoError(t, (plan{rounds: 1, payloads: payloads[:1], shares: []share{{10, 10}}, limit: time.Second}).run(t.Context(), &out))
	testkit.NoError(t, harness.Complete(out.String(), "failing_percent payload watermill_per_s spillway_per_s"))
	out.Reset()
	testkit.NoError(t, (plan{rounds: 1, payloads: payloads[:1], shares: []share{{0, 200}}, limit: time.Second,
		only: "subscribers"}).run(t.Context(), &out))
	testkit.NoError(t, harness.Complete(out.String(), "payload ratio_to_least least_per_s wmkafka_per_s watermill_kafka_per_s "+
		"least_allocs wmkafka_allocs least_cpu_ns wmkafka_cpu_ns"))
}
