package main

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"
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

// Promises P1 and P7, end to end on RabbitMQ: whenever the consumer is killed, nothing is lost and nothing happens
// twice.
func TestDemo(t *testing.T) {
	services.AMQP(t)
	testDemo(t, 1, crash.Plan{Kills: 1, KillAt: 1}, "quorum")
	testDemo(t, 2, crash.Plan{Kills: 1, KillAt: 35}, "classic")
	testDemo(t, 3, crash.Plan{Kills: 3}, "quorum")
}

// The same where there is no PostgreSQL: two processes, one of them killed, on one SQLite.
func TestDemoOnSQLite(t *testing.T) {
	services.AMQP(t)
	listener := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))
	_, closed, _ := net.SplitHostPort(listener.Addr().String())
	_ = listener.Close()
	t.Setenv("SPILLWAY_POSTGRES", "")
	t.Setenv("SPILLWAY_POSTGRES_PORT", closed)
	testDemo(t, 4, crash.Plan{Kills: 1, KillAt: 10}, "quorum")
}

func testDemo(t *testing.T, seed uint64, plan crash.Plan, queueType string) {
	t.Helper()
	plan.Seed = seed
	result := testkit.Must(run(context.Background(), &plan, queueType))
	if err := result.Check(60); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	nothingIsLeft(t, plan.Topic)
}

func nothingIsLeft(t *testing.T, topic string) {
	t.Helper()
	for _, suffix := range []string{"", ".summaries", ".dlq", ".invalid", ".dlq.parked", ".invalid.parked"} {
		err := onChannel(services.AMQP(t), func(channel *amqp091.Channel) error {
			_, err := channel.QueueDeclarePassive(topic+suffix, true, false, false, false, nil)
			return err
		})
		if refusal := (*amqp091.Error)(nil); !errors.As(err, &refusal) || refusal.Code != amqp091.NotFound {
			t.Errorf("left behind: queue %s: %v", topic+suffix, err)
		}
	}
}

// What cannot be done is an error that says what to do, before anything is made on RabbitMQ.
func TestDemoRefuses(t *testing.T) {
	for _, c := range []struct {
		plan           crash.Plan
		address, queue string
		want           string
	}{
		{crash.Plan{}, "", "stream", `-queue "stream": give quorum or classic`},
		{crash.Plan{Kills: 1, KillAt: 1000}, "", "quorum", "-kill-at 1000"},
		{crash.Plan{}, "amqp://me:secret@127.0.0.1:1/", "quorum", `"make services", or correct SPILLWAY_AMQP`},
		{crash.Plan{}, "amqp://me:secret@127.0.0.1:x/", "quorum", "SPILLWAY_AMQP"},
	} {
		t.Setenv("SPILLWAY_AMQP", c.address)
		if _, err := run(context.Background(), &c.plan, c.queue); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v; want %s", c, err, c.want)
		}
	}
}
