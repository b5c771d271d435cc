package main

import (
	"io"
	"testing"

	"github.com/watermill-spillway/spillway/examples/internal/leaks"
	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

func TestMain(m *testing.M) { leaks.Main(m) }

var rows = []struct {
	on   string
	need func(testing.TB)
}{
	{"kafka", func(t testing.TB) { services.Kafka(t) }},
	{"rabbitmq", func(t testing.TB) { services.AMQP(t) }},
	{"postgres", func(t testing.TB) { services.Postgres(t) }},
}

// Promise P3: a rolling deploy of three instances under load cuts off no handler, and no message is handled twice or
// dead-lettered for it.
func TestRollingDeploy(t *testing.T) {
	for _, row := range rows {
		t.Run(row.on, func(t *testing.T) {
			t.Parallel()
			row.need(t)
			deploys(t, "-on", row.on)
		})
	}
}

// Without the drain handlers are cut off, so the test above sees them.
func TestWithoutDrain(t *testing.T) {
	t.Parallel()
	services.AMQP(t)
	result := deploys(t, "-on", "rabbitmq", "-without")
	testkit.Check(t, result.CutOff != 0, "no handler was cut off")
}

func deploys(t *testing.T, args ...string) *Result {
	t.Helper()
	plan := parse(append(args, "-between", "1s"))
	result, err := run(t.Context(), plan, io.Discard)
	testkit.NoError(t, err)
	t.Log(result.JSON())
	testkit.Check(t, result.good(plan), "the deploy shows")
	return result
}
