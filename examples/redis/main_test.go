package main

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/examples/internal/crash"
	"github.com/watermill-spillway/spillway/examples/internal/crash/crashtest"
	"github.com/watermill-spillway/spillway/internal/testing/services"
)

func TestMain(m *testing.M) {
	// The subscriber's reader sleeps half a second after the error with which its client's Close ends it.
	crashtest.Main(m, main, goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream.(*Subscriber).read"))
}

// Promises P1 and P7, end to end on Redis: whenever the consumer is killed, nothing is lost and nothing happens twice.
func TestDemo(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: services.Redis(t)})
	defer func() { _ = client.Close() }()
	topic := crashtest.Run(run).Keeps(t, 1, crash.Plan{Kills: 2, KillAt: 20})
	if left, err := client.Keys(t.Context(), topic+"*").Result(); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// What cannot be done is an error that says what to do, before anything is made on Redis.
func TestDemoRefuses(t *testing.T) {
	t.Setenv("SPILLWAY_REDIS", "127.0.0.1:1")
	crashtest.Run(run).Refuses(t, crash.Plan{Kills: 1, KillAt: 1000}, "-kill-at 1000")
	crashtest.Run(run).Refuses(t, crash.Plan{}, `"make services", or correct SPILLWAY_REDIS`)
}
