package columns_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/examples/redis/streams"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
)

// redisStory is a topic on Redis, and a database in which each message takes effect.
type redisStory struct {
	*testing.T
	redisBroker
	topic string
	db    *sql.DB
	gate  chan struct{} // handlers wait until it is closed; nil is open
}

func newRedisStory(t *testing.T, b redisBroker) *redisStory {
	t.Helper()
	s := &redisStory{t, b, "story-" + strings.ToLower(rand.Text()[:10]), databases.SQLite.New(t), nil}
	testkit.Must(s.db.Exec(`CREATE TABLE effects (id TEXT NOT NULL)`))
	return s
}

// run consumes the topic with one instance. Ids that begin with "bad" fail for good. The handler takes its time.
func (s *redisStory) run(maxIdle, takes time.Duration) (stop func()) {
	s.Helper()
	dead := s.publisher(s.T, s.options())
	s.Cleanup(func() { _ = dead.Close() })
	ch, err := spillway.New(s.Context(), spillway.Config{Service: s.topic, DB: s.db, Publisher: dead, Logger: watermill.NopLogger{}})
	if err != nil {
		s.Fatal(err)
	}
	sub := s.subscriber(s.T, s.topic, maxIdle, s.options())
	return testkit.RunRouter(s.T, watermill.NopLogger{}, func(router *message.Router) {
		ch.Attach(router)
		router.AddConsumerHandler("billing", s.topic, sub, func(msg *message.Message) error {
			if s.gate != nil {
				<-s.gate
			}
			time.Sleep(takes)
			if strings.HasPrefix(msg.UUID, "bad") {
				return classify.Permanent(errors.New("never"))
			}
			_, err := idempotency.Tx(msg.Context()).Exec(`INSERT INTO effects (id) VALUES (?)`, msg.UUID)
			return err
		})
	})
}

// send publishes ids, each until the broker confirms it.
func (s *redisStory) send(ids ...string) {
	s.Helper()
	pub := s.publisher(s.T, s.options())
	defer func() { _ = pub.Close() }()
	for _, id := range ids {
		testkit.Eventually(s, "the broker takes "+id, func() bool { return pub.Publish(s.topic, message.NewMessage(id, []byte("v"))) == nil })
	}
}

func (s *redisStory) effects() map[string]int {
	s.Helper()
	rows := testkit.Must(s.db.Query(`SELECT id, count(*) FROM effects GROUP BY id`))
	defer func() { _ = rows.Close() }()
	counts := map[string]int{}
	for rows.Next() {
		var id string
		var n int
		testkit.NoError(s, rows.Scan(&id, &n))
		counts[id] = n
	}
	return counts
}

// letters counts the dead letters by id. A broker that is away has none.
func (s *redisStory) letters() map[string]int {
	options := s.options()
	client := redis.NewClient(&options)
	defer func() { _ = client.Close() }()
	entries, _ := client.XRange(context.Background(), s.topic+".dlq", "-", "+").Result()
	counts := map[string]int{}
	for _, e := range entries {
		counts[fmt.Sprint(e.Values[redisstream.UUIDHeaderKey])]++
	}
	return counts
}

// untilAll waits until each id took effect, or is a letter if it is bad, and nothing waits in the topic. No effect is
// doubled.
func (s *redisStory) untilAll(ids []string) {
	s.Helper()
	place := func(id string) map[string]int {
		if strings.HasPrefix(id, "bad") {
			return s.letters()
		}
		return s.effects()
	}
	backlog := s.backlog(s.T, s.topic)
	testkit.Eventually(s, "nothing waits", func() bool {
		n, err := backlog(s.Context(), s.topic)
		return err == nil && n == 0
	})
	for _, id := range ids {
		if place(id)[id] == 0 {
			s.Errorf("%q is lost", id)
		}
	}
	effects := s.effects()
	for id, n := range effects {
		if n > 1 || strings.HasPrefix(id, "bad") {
			s.Errorf("%q took effect %d times", id, n)
		}
	}
	s.Logf("%d messages: %d effects, %d letters", len(ids), len(effects), len(s.letters()))
}

func several(prefix string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s-%03d", prefix, i))
	}
	return ids
}

// Promises P1, P7: Redis is killed under load, again and again. What it confirmed is there after each kill.
func TestRedisKilled(t *testing.T) {
	t.Parallel()
	server := newRedisServer(t)
	s := newRedisStory(t, server.redisBroker)
	s.run(2*time.Second, 0)
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
	s := newRedisStory(t, server.redisBroker)
	ids := slices.Concat(several("good", 3), several("bad", 3), several("good-again", 3))
	s.gate = make(chan struct{})
	s.run(2*time.Second, 0)
	s.send(ids...)
	memory := func(most string) {
		s.admin(t, func(ctx context.Context, client redis.UniversalClient) error {
			return client.ConfigSet(ctx, "maxmemory", most).Err()
		})
	}
	memory("1")
	close(s.gate)
	testkit.Eventually(t, "those before the first letter took effect", func() bool { return len(s.effects()) >= 3 })
	time.Sleep(3 * time.Second)
	if n, err := s.backlog(t, s.topic)(t.Context(), s.topic); err != nil || n != 6 || len(s.letters()) > 0 {
		t.Errorf("%d messages wait (%v), and there are letters %v", n, err, s.letters())
	}
	memory("0")
	s.untilAll(ids)
	s.admin(t, func(ctx context.Context, client redis.UniversalClient) error {
		return errors.Join(client.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err(), client.ConfigSet(ctx, "appendonly", "no").Err())
	})
	if err := streams.CheckServer(t.Context(), s.options()); err == nil || !strings.Contains(err.Error(), "noeviction") || !strings.Contains(err.Error(), "appendonly yes") {
		t.Errorf("a server that evicts, and keeps nothing: %v", err)
	}
}

// Promises P1, P7: a message is claimed by another instance, and by its own, because its handler takes longer than
// MaxIdleTime. Its effect stays one, and it is not lost.
func TestRedisClaimsWhileHandled(t *testing.T) {
	t.Parallel()
	server := newRedisServer(t)
	s := newRedisStory(t, server.redisBroker)
	ids := slices.Concat(several("good", 4), several("bad", 1))
	s.run(500*time.Millisecond, time.Second)
	s.run(500*time.Millisecond, time.Second)
	s.send(ids...)
	s.untilAll(ids)
	if letters := s.letters(); !slices.Equal(slices.Sorted(maps.Keys(letters)), several("bad", 1)) {
		t.Errorf("letters: %v", letters)
	}
}

// A stream that is deleted takes its groups with it. The subscription then ends, instead of failing for ever, and the
// next one gets what was published since.
func TestRedisSourceDeleted(t *testing.T) {
	t.Parallel()
	server := newRedisServer(t)
	s := newRedisStory(t, server.redisBroker)
	s.send("good-1")
	sub := s.subscriber(t, s.topic, time.Second, s.options())
	defer func() { _ = sub.Close() }()
	messages := testkit.Must(sub.Subscribe(t.Context(), s.topic))
	testkit.Receive(t, "the message comes", messages).Ack()
	s.deleteTopic(t, s.topic)
	if msg := testkit.Receive(t, "the subscription ends", messages); msg != nil {
		t.Fatalf("%q came", msg.UUID)
	}
	s.run(time.Second, 0)
	s.send("good-2")
	testkit.Eventually(t, "the next message took effect", func() bool { return s.effects()["good-2"] == 1 })
}
