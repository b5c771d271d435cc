package main

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/internal/testing/leaks"
	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { leaks.Main(m) }

var brokers = []string{"kafka", "rabbitmq", "postgres"}

// Promise P3: a rolling deploy of three instances under load cuts off no handler, and no message is handled twice or
// dead-lettered for it.
func TestRollingDeploy(t *testing.T) {
	for _, on := range brokers {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			services.Need(t, on)
			deploys(t, "-on", on)
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
	result := testkit.Must(run(t.Context(), plan, io.Discard))
	t.Log(result.JSON())
	testkit.Check(t, result.good(plan), "the deploy shows")
	return result
}

// Promise P3: a handler that never ends holds up Close for the drain and the grace after it, and no longer. Its
// context ends when the drain does.
func TestHandlerThatNeverEnds(t *testing.T) {
	const drain, rest = time.Second, 3 * time.Second
	for _, on := range brokers {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			services.Need(t, on)
			plan := parse([]string{"-on", on})
			s := testkit.Must(openSource(t.Context(), plan))
			defer func() { testkit.NoError(t, s.close()) }()
			sub := testkit.Must(s.subscribe())
			channel, err := spillway.New(t.Context(), spillway.Config{Publisher: letters{newTally()}, DrainTimeout: drain})
			testkit.NoError(t, err)
			router := testkit.Must(message.NewRouter(message.RouterConfig{CloseTimeout: drain + rest}, watermill.NopLogger{}))
			channel.Attach(router)
			begun, ended, closed := make(chan struct{}, 9), make(chan time.Time, 9), make(chan struct{})
			router.AddConsumerHandler("never ends", plan.topic, sub, func(msg *message.Message) error {
				begun <- struct{}{}
				<-msg.Context().Done()
				ended <- time.Now()
				<-closed
				return nil
			})
			go func() { _ = router.Run(context.Background()) }()
			<-router.Running()
			testkit.NoError(t, s.publisher.Publish(plan.topic, message.NewMessage("1", nil)))
			<-begun
			began := time.Now()
			_ = sub.Close() // the router waits for its handlers themselves too
			took := time.Since(began)
			close(closed)
			testkit.NoError(t, router.Close())
			if cut := (<-ended).Sub(began); cut < drain-100*time.Millisecond || took > drain+rest {
				t.Errorf("the context ended after %s, and Close returned after %s", cut, took)
			}
		})
	}
}
