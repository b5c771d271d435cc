package columns_test

import (
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/watermill-spillway/spillway/internal/testing/services"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
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
		testkit.Require(t, os.Getenv("SPILLWAY_REDIS") != "" || os.Getenv("CI") != "true", "%v", err)
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
