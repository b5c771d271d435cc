package columns_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/watermill-spillway/spillway/examples/redis/streams"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// redisHistory is a story on a Redis of the test's own.
type redisHistory struct {
	*history
	broker redisBroker
}

func newRedisHistory(t *testing.T, b redisBroker) *redisHistory {
	t.Helper()
	s := &redisHistory{newHistory(t), b}
	s.publish = func() message.Publisher { return b.publisher(t, b.options()) }
	s.backlog = func() func(context.Context, string) (int, error) { return b.backlog(t, s.topic) }
	s.letters = func() map[string]int {
		options := b.options()
		client := redis.NewClient(&options)
		defer func() { _ = client.Close() }()
		entries, _ := client.XRange(context.Background(), s.topic+".dlq", "-", "+").Result()
		counts := map[string]int{}
		for _, e := range entries {
			counts[fmt.Sprint(e.Values[redisstream.UUIDHeaderKey])]++
		}
		return counts
	}
	return s
}

func (s *redisHistory) consume(maxIdle, takes time.Duration) (stop func()) {
	return s.run(s.broker.subscriber(s.T, s.topic, maxIdle, s.broker.options()), takes)
}

// Promises P1, P7: Redis is killed under load, again and again. What it confirmed is there after each kill.
func TestRedisKilled(t *testing.T) {
	t.Parallel()
	server := newRedisServer(t)
	s := newRedisHistory(t, server.redisBroker)
	s.consume(2*time.Second, 0)
	var sending sync.WaitGroup
	ids := slices.Concat(several("good", 200), several("bad", 50))
	for chunk := range slices.Chunk(ids, 50) {
		sending.Go(func() {
			for _, id := range chunk {
				s.send(id)
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	for range 4 {
		time.Sleep(300 * time.Millisecond)
		server.kill()
		time.Sleep(50 * time.Millisecond)
		server.start(t)
	}
	sending.Wait()
	s.untilAll(ids)
}

// Promises P1, P4: Redis has no memory left for letters. Their messages are not acked, and are placed when there is
// some.
func TestRedisFull(t *testing.T) {
	t.Parallel()
	server := newRedisServer(t)
	s := newRedisHistory(t, server.redisBroker)
	ids := slices.Concat(several("good", 3), several("bad", 3), several("good-again", 3))
	s.gate = make(chan struct{})
	s.consume(2*time.Second, 0)
	s.send(ids...)
	memory := func(most string) {
		s.broker.admin(t, func(ctx context.Context, client redis.UniversalClient) error {
			return client.ConfigSet(ctx, "maxmemory", most).Err()
		})
	}
	memory("1")
	close(s.gate)
	testkit.Eventually(t, "those before the first letter took effect", func() bool { return len(s.effects()) >= 3 })
	time.Sleep(3 * time.Second)
	if n, err := s.backlog()(t.Context(), s.topic); err != nil || n != 6 || len(s.letters()) > 0 {
		t.Errorf("%d messages wait (%v), and there are letters %v", n, err, s.letters())
	}
	memory("0")
	s.untilAll(ids)
	s.broker.admin(t, func(ctx context.Context, client redis.UniversalClient) error {
		return errors.Join(client.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err(), client.ConfigSet(ctx, "appendonly", "no").Err())
	})
	if err := streams.CheckServer(t.Context(), s.broker.options()); err == nil || !strings.Contains(err.Error(), "noeviction") || !strings.Contains(err.Error(), "appendonly yes") {
		t.Errorf("a server that evicts, and keeps nothing: %v", err)
	}
}

// Promises P1, P7: a message is claimed by another instance, and by its own, because its handler takes longer than
// MaxIdleTime. Its effect stays one, and it is not lost.
func TestRedisClaimsWhileHandled(t *testing.T) {
	t.Parallel()
	server := newRedisServer(t)
	s := newRedisHistory(t, server.redisBroker)
	ids := slices.Concat(several("good", 4), several("bad", 1))
	s.consume(500*time.Millisecond, time.Second)
	s.consume(500*time.Millisecond, time.Second)
	s.send(ids...)
	s.untilAll(ids)
	if letters := s.letters(); !slices.Equal(slices.Sorted(maps.Keys(letters)), several("bad", 1)) {
		t.Errorf("letters: %v", letters)
	}
}
