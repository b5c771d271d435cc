package main

import (
	"context"
	"testing"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/examples/internal/crash/crashtest"
	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/internal/testing/services"
)

func TestMain(m *testing.M) { crashtest.Main(m, main) }

func on(database string) crashtest.Run {
	return func(ctx context.Context, plan *crash.Plan) (webhooks.Result, error) { return run(ctx, plan, database) }
}

// Promises P1 and P7, and feature D9, end to end on tables: whenever the consumer is killed, nothing is lost and
// nothing happens twice.
func TestDemo(t *testing.T) {
	services.Need(t, "postgres", "mariadb")
	on(crash.Postgres).Keeps(t, 1, crash.Plan{Kills: 1, KillAt: 1})
	on(crash.MySQL).Keeps(t, 2, crash.Plan{Kills: 1, KillAt: 35})
	on(crash.Postgres).Keeps(t, 3, crash.Plan{Kills: 5, KillAt: 6})
	on(crash.MySQL).Keeps(t, 4, crash.Plan{Kills: 5, KillAt: 6})
}

// What cannot be done is an error that says what to do.
func TestDemoRefuses(t *testing.T) {
	t.Setenv("SPILLWAY_POSTGRES", "postgres://spillway:secret@127.0.0.1:1/spillway")
	t.Setenv("SPILLWAY_MYSQL", "spillway:secret@tcp(127.0.0.1:1)/spillway")
	on("oracle").Refuses(t, crash.Plan{}, "-db \"oracle\": give postgres or mysql")
	on(crash.Postgres).Refuses(t, crash.Plan{Kills: 1, KillAt: 1000}, "-kill-at 1000")
	on(crash.Postgres).Refuses(t, crash.Plan{}, "SPILLWAY_POSTGRES")
	on(crash.MySQL).Refuses(t, crash.Plan{}, "SPILLWAY_MYSQL")
}
