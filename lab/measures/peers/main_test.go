package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/leaks"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// The sides in Go are measured to the end, and the lines say what is asked for. What they say is not judged here.
func TestFigures(t *testing.T) {
	services.Kafka(t)
	err := (plan{}).run(t.Context(), io.Discard)
	testkit.Require(t, err != nil && strings.Contains(err.Error(), "-rounds"), "no round counts: %v", err)
	p := plan{rounds: 1, payloads: payloads[:1], shares: []share{{10, 10}}, limit: time.Second}
	testkit.NoError(t, harness.Measures(t.Context(), p.run, "failing_percent payload watermill_per_s spillway_per_s"))
	p.shares, p.only = []share{{0, 200}}, "subscribers"
	testkit.NoError(t, harness.Measures(t.Context(), p.run, "payload ratio_to_least least_per_s wmkafka_per_s "+
		"watermill_kafka_per_s least_allocs wmkafka_allocs least_cpu_ns wmkafka_cpu_ns"))
}
