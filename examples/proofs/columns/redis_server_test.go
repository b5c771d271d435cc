package columns_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

// redisServer is a Redis of the test's own, which may be killed and starved beside other tests.
type redisServer struct {
	redisBroker
	folder string
	cmd    *osexec.Cmd
}

func newRedisServer(t *testing.T) *redisServer {
	t.Helper()
	services.Redis(t)
	if _, err := osexec.LookPath("redis-server"); err != nil {
		if os.Getenv("SPILLWAY_REDIS") == "" && os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("NOT TESTED: a Redis that the test can kill needs redis-server: install it")
	}
	listener := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))
	s := &redisServer{redisBroker: redisBroker(listener.Addr().String()), folder: t.TempDir()}
	_ = listener.Close()
	s.start(t)
	t.Cleanup(func() { s.kill() })
	return s
}

// start returns when the server has read its data and answers.
func (s *redisServer) start(t testing.TB) {
	t.Helper()
	_, port, err := net.SplitHostPort(string(s.redisBroker))
	testkit.NoError(t, err)
	s.cmd = osexec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", s.folder, "--daemonize", "no", "--save", "",
		"--appendonly", "yes", "--appendfsync", "always", "--logfile", filepath.Join(s.folder, "log"))
	testkit.NoError(t, s.cmd.Start())
	client := redis.NewClient(&redis.Options{Addr: string(s.redisBroker), MaxRetries: -1})
	defer func() { _ = client.Close() }()
	testkit.Eventually(t, "Redis answers at port "+strconv.Quote(port), func() bool { return client.Ping(t.Context()).Err() == nil })
}

// kill is SIGKILL.
func (s *redisServer) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// Promise P7: redisstream passes an ack on in a goroutine of its own, and not after its context's end. What a drain
// took last is acked all the same, or the next drain would bring it back again. It runs before the parallel tests,
// which restart the server.
func TestRedisDrainAcksItsLast(t *testing.T) {
	b := redisBroker(services.Redis(t))
	topic, group := "drained-"+rand.Text(), "drains"
	b.createTopic(t, topic)
	b.createTopic(t, topic+".dlq")
	pub := b.publisher(t, b.options())
	t.Cleanup(func() { _ = pub.Close() })
	for i := range 8 {
		letter := message.NewMessage(fmt.Sprint(i), []byte("v"))
		letter.Metadata = message.Metadata{poison.KeyOriginalTopic: topic, poison.KeyFailureClass: "permanent"}
		testkit.NoError(t, pub.Publish(topic+".dlq", letter))
		sub := b.subscriber(t, group, redisIdle, b.options())
		report, err := redrive.DrainTopic(t.Context(), sub, pub, redrive.DrainTopicConfig{
			Rules: redrive.Rules{Allow: []string{topic}}, Topic: topic + ".dlq", Park: pub, Backlog: b.backlog(t, group),
		})
		if err != nil || report.Redriven != 1 {
			t.Fatalf("%+v, %v", report, err)
		}
		testkit.NoError(t, sub.Close())
		b.admin(t, func(ctx context.Context, client redis.UniversalClient) error {
			pending, err := client.XPending(ctx, topic+".dlq", group).Result()
			if err == nil && pending.Count != 0 {
				t.Errorf("after drain %d, %d letters are not acked", i, pending.Count)
			}
			return err
		})
	}
}
