package main

import (
	"context"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/examples/nats/jetstream"
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

// Promises P1 and P7, end to end on NATS: whenever the consumer is killed, nothing is lost and nothing happens twice.
func TestDemo(t *testing.T) {
	services.NATS(t)
	for seed, plan := range []crash.Plan{{Kills: 2, KillAt: 20}} {
		plan.Seed = uint64(seed + 1)
		result := testkit.Must(run(context.Background(), &plan))
		if err := result.Check(60); err != nil {
			t.Errorf("seed %d: %v", plan.Seed, err)
		}
		nothingIsLeft(t, plan.Topic)
	}
}

func nothingIsLeft(t *testing.T, topic string) {
	t.Helper()
	conn := testkit.Must(nats.Connect(services.NATS(t)))
	defer conn.Close()
	js := testkit.Must(conn.JetStream())
	for name := range js.StreamNames() {
		if strings.HasPrefix(name, jetstream.Name(topic)) {
			t.Errorf("left behind: stream %s", name)
		}
	}
}

// What cannot be done is an error that says what to do, before anything is made on NATS.
func TestDemoRefuses(t *testing.T) {
	password := "secret"
	nowhere := (&url.URL{Scheme: "nats", User: url.UserPassword("me", password), Host: "127.0.0.1:1"}).String()
	t.Setenv("SPILLWAY_NATS", nowhere)
	for _, c := range []struct {
		plan crash.Plan
		want string
	}{
		{crash.Plan{Kills: 1, KillAt: 1000}, "-kill-at 1000"},
		{crash.Plan{}, `"make services", or correct SPILLWAY_NATS`},
	} {
		if _, err := run(context.Background(), &c.plan); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), password) {
			t.Errorf("%+v: %v; want %s", c.plan, err, c.want)
		}
	}
}
