package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
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
	// The subscriber's reader sleeps half a second after the error with which its client's Close ends it.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream.(*Subscriber).read"))
}

// Promises P1 and P7, end to end on Redis: whenever the consumer is killed, nothing is lost and nothing happens twice.
func TestDemo(t *testing.T) {
	address := services.Redis(t)
	plan := crash.Plan{Kills: 2, KillAt: 20}
	plan.Seed = 1
	result := testkit.Must(run(context.Background(), &plan))
	testkit.NoError(t, result.Check(60))
	client := redis.NewClient(&redis.Options{Addr: address})
	defer func() { _ = client.Close() }()
	if left, err := client.Keys(t.Context(), plan.Topic+"*").Result(); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// What cannot be done is an error that says what to do, before anything is made on Redis.
func TestDemoRefuses(t *testing.T) {
	t.Setenv("SPILLWAY_REDIS", "127.0.0.1:1")
	for _, c := range []struct {
		plan crash.Plan
		want string
	}{
		{crash.Plan{Kills: 1, KillAt: 1000}, "-kill-at 1000"},
		{crash.Plan{}, `"make services", or correct SPILLWAY_REDIS`},
	} {
		if _, err := run(context.Background(), &c.plan); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v; want %s", c.plan, err, c.want)
		}
	}
}
