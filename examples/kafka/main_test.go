package main

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/examples/internal/crash/crashtest"
	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/internal/testing/services"
)

func TestMain(m *testing.M) {
	// Sarama's metrics have one goroutine for the whole process.
	crashtest.Main(m, main, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

func on(partitions int) crashtest.Run {
	return func(ctx context.Context, plan *crash.Plan) (webhooks.Result, error) {
		return run(ctx, plan, partitions)
	}
}

// Promises P1 and P7, end to end on Kafka: whenever the consumer is killed, nothing is lost and nothing happens twice.
func TestDemo(t *testing.T) {
	services.Kafka(t)
	crashtest.NothingIsLeft(t, on(3).Keeps(t, 1, crash.Plan{Kills: 1, KillAt: 1}))
	crashtest.NothingIsLeft(t, on(1).Keeps(t, 2, crash.Plan{Kills: 1, KillAt: 35}))
}

// What cannot be done is an error that says what to do, before anything is made on Kafka.
func TestDemoRefuses(t *testing.T) {
	t.Setenv("SPILLWAY_KAFKA", "127.0.0.1:1")
	on(0).Refuses(t, crash.Plan{}, "-partitions 0: give 1")
	on(1<<40).Refuses(t, crash.Plan{}, "-partitions")
	on(1).Refuses(t, crash.Plan{Kills: 1, KillAt: 1000}, "-kill-at 1000")
	on(1).Refuses(t, crash.Plan{}, "SPILLWAY_KAFKA")
}
