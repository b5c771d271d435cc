package main

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/examples/internal/crash/crashtest"
	"github.com/watermill-spillway/spillway/examples/internal/webhooks"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { crashtest.Main(m, main) }

func on(queueType string) crashtest.Run {
	return func(ctx context.Context, plan *crash.Plan) (webhooks.Result, error) { return run(ctx, plan, queueType) }
}

// Promises P1 and P7, end to end on RabbitMQ: whenever the consumer is killed, nothing is lost and nothing happens
// twice.
func TestDemo(t *testing.T) {
	services.AMQP(t)
	nothingIsLeft(t, on("quorum").Keeps(t, 1, crash.Plan{Kills: 1, KillAt: 1}))
	nothingIsLeft(t, on("classic").Keeps(t, 2, crash.Plan{Kills: 1, KillAt: 35}))
	nothingIsLeft(t, on("quorum").Keeps(t, 3, crash.Plan{Kills: 3}))
}

// The same where there is no PostgreSQL: two processes, one of them killed, on one SQLite.
func TestDemoOnSQLite(t *testing.T) {
	services.AMQP(t)
	listener := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))
	_, closed, _ := net.SplitHostPort(listener.Addr().String())
	_ = listener.Close()
	t.Setenv("SPILLWAY_POSTGRES", "")
	t.Setenv("SPILLWAY_POSTGRES_PORT", closed)
	nothingIsLeft(t, on("quorum").Keeps(t, 4, crash.Plan{Kills: 1, KillAt: 10}))
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
	t.Setenv("SPILLWAY_AMQP", "")
	on("stream").Refuses(t, crash.Plan{}, `-queue "stream": give quorum or classic`)
	on("quorum").Refuses(t, crash.Plan{Kills: 1, KillAt: 1000}, "-kill-at 1000")
	t.Setenv("SPILLWAY_AMQP", "amqp://me:secret@127.0.0.1:1/")
	on("quorum").Refuses(t, crash.Plan{}, `"make services", or correct SPILLWAY_AMQP`)
	t.Setenv("SPILLWAY_AMQP", "amqp://me:secret@127.0.0.1:x/")
	on("quorum").Refuses(t, crash.Plan{}, "SPILLWAY_AMQP")
}
