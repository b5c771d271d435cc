package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// The example starts itself as its consumer, and here that is the test.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-consume") {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// Promises P1 and P7, and feature D9, end to end on tables: whenever the consumer is killed, nothing is lost and
// nothing happens twice.
func TestDemo(t *testing.T) {
	services.Postgres(t)
	services.MySQL(t)
	for _, c := range []struct {
		database      string
		seed          uint64
		kills, killAt int
	}{{crash.Postgres, 1, 1, 1}, {crash.MySQL, 2, 1, 35}, {crash.Postgres, 3, 5, 6}, {crash.MySQL, 4, 5, 6}} {
		plan := crash.Plan{Kills: c.kills, KillAt: c.killAt}
		plan.Seed = c.seed
		result := testkit.Must(run(context.Background(), &plan, c.database))
		if err := result.Check(60); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// What cannot be done is an error that says what to do.
func TestDemoRefuses(t *testing.T) {
	t.Setenv("SPILLWAY_POSTGRES", "postgres://spillway:secret@127.0.0.1:1/spillway")
	t.Setenv("SPILLWAY_MYSQL", "spillway:secret@tcp(127.0.0.1:1)/spillway")
	for _, c := range []struct {
		plan     crash.Plan
		database string
		want     string
	}{
		{crash.Plan{}, "oracle", "-db \"oracle\": give postgres or mysql"},
		{crash.Plan{Kills: 1, KillAt: 1000}, crash.Postgres, "-kill-at 1000"},
		{crash.Plan{}, crash.Postgres, "SPILLWAY_POSTGRES"},
		{crash.Plan{}, crash.MySQL, "SPILLWAY_MYSQL"},
	} {
		_, err := run(context.Background(), &c.plan, c.database)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v; want %s", c, err, c.want)
		}
	}
}
