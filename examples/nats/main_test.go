package main

import (
	"net/url"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/examples/internal/crash/crashtest"
	"github.com/watermill-spillway/spillway/examples/nats/jetstream"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { crashtest.Main(m, main) }

// Promises P1 and P7, end to end on NATS: whenever the consumer is killed, nothing is lost and nothing happens twice.
func TestDemo(t *testing.T) {
	address := services.NATS(t)
	topic := crashtest.Run(run).Keeps(t, 1, crash.Plan{Kills: 2, KillAt: 20})
	conn := testkit.Must(nats.Connect(address))
	defer conn.Close()
	js := testkit.Must(conn.JetStream())
	for name := range js.StreamNames() {
		testkit.Check(t, !strings.HasPrefix(name, jetstream.Name(topic)), "left behind: stream %s", name)
	}
}

// What cannot be done is an error that says what to do, before anything is made on NATS.
func TestDemoRefuses(t *testing.T) {
	password := "secret"
	t.Setenv("SPILLWAY_NATS", (&url.URL{Scheme: "nats", User: url.UserPassword("me", password), Host: "127.0.0.1:1"}).String())
	crashtest.Run(run).Refuses(t, crash.Plan{Kills: 1, KillAt: 1000}, "-kill-at 1000")
	crashtest.Run(run).Refuses(t, crash.Plan{}, `"make services", or correct SPILLWAY_NATS`)
}
