package services

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fakeT records how a test would have ended.
type fakeT struct {
	testing.TB
	skipped, failed string
}

func (f *fakeT) Helper()          {}
func (f *fakeT) Cleanup(func())   {}
func (f *fakeT) Skip(args ...any) { f.Skipf("%s", fmt.Sprint(args...)) }
func (f *fakeT) Skipf(format string, args ...any) {
	f.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
func (f *fakeT) Fatal(args ...any) { f.Fatalf("%s", fmt.Sprint(args...)) }
func (f *fakeT) Fatalf(format string, args ...any) {
	f.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func try(test func(testing.TB)) *fakeT {
	fake, done := &fakeT{}, make(chan struct{})
	go func() {
		defer close(done)
		test(fake)
	}()
	<-done
	return fake
}

// closedPort returns a port without a listener.
func closedPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	_ = listener.Close()
	return port
}

func unset(t *testing.T) {
	t.Helper()
	for _, s := range servers {
		t.Setenv(s.variable, "")
	}
	t.Setenv("SPILLWAY_EMBEDDED", "")
	t.Setenv("CI", "")
	was := patience
	patience = 0
	t.Cleanup(func() { patience = was })
}

func TestAddressFromTheEnvironment(t *testing.T) {
	unset(t)
	t.Setenv("SPILLWAY_KAFKA", "one:9092, two:9092")
	if got := Kafka(t); len(got) != 2 || got[0] != "one:9092" || got[1] != "two:9092" {
		t.Errorf("brokers %q", got)
	}
	t.Setenv("SPILLWAY_MYSQL", "anything")
	if got := MySQL(t); got != "anything" {
		t.Errorf("address %q", got)
	}
}

// What is missing is a hole in the tests: it says what to do, and in CI it fails them.
func TestAbsent(t *testing.T) {
	unset(t)
	t.Setenv("SPILLWAY_AMQP_PORT", closedPort(t))
	t.Setenv("SPILLWAY_AXE_FOLDER", t.TempDir())
	t.Setenv("PATH", t.TempDir())
	was := sbin
	sbin = nil
	t.Cleanup(func() { sbin = was })
	for says, ask := range map[string]func(testing.TB){
		"make services":      func(t testing.TB) { AMQP(t) },
		"install browser":    func(t testing.TB) { Chromium(t) },
		"install browser ":   func(t testing.TB) { Axe(t) },
		"install pgbouncer":  func(t testing.TB) { PgBouncer(t, "postgres://u:p@127.0.0.1:1/d") },
		"install prometheus": func(t testing.TB) { Promtool(t) },
	} {
		says = strings.TrimSpace(says)
		t.Setenv("CI", "")
		if got := try(ask); got.failed != "" || !strings.Contains(got.skipped, says) {
			t.Errorf("%s at a developer's: %+v", says, got)
		}
		t.Setenv("CI", "true")
		if got := try(ask); got.skipped != "" || !strings.Contains(got.failed, says) {
			t.Errorf("%s in CI: %+v", says, got)
		}
		t.Setenv("SPILLWAY_EMBEDDED", "1")
		if got := try(ask); got.failed != "" || got.skipped == "" {
			t.Errorf("%s embedded: %+v", says, got)
		}
		t.Setenv("SPILLWAY_EMBEDDED", "")
	}
}

// In CI a server that a test beside this one restarts is waited for.
func TestAddressOfARestartedServer(t *testing.T) {
	unset(t)
	patience = time.Minute
	port := closedPort(t)
	t.Setenv("SPILLWAY_REDIS_PORT", port)
	t.Setenv("CI", "true")
	started := make(chan net.Listener, 1)
	go func() {
		time.Sleep(20 * time.Millisecond) // so that the first try is refused
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			t.Error(err)
		}
		started <- listener
	}()
	got := try(func(t testing.TB) { Redis(t) })
	if got.failed != "" || got.skipped != "" {
		t.Errorf("%+v", got)
	}
	if listener := <-started; listener != nil {
		_ = listener.Close()
	}
}

// A server whose address was given is not ours, also in CI.
func TestGivenServerIsLeftAlone(t *testing.T) {
	unset(t)
	t.Setenv("SPILLWAY_POSTGRES", "postgres://db.example.com/")
	t.Setenv("CI", "true")
	for _, fault := range []func(testing.TB, string){Restart, Stop, Kill, Start} {
		if got := try(func(t testing.TB) { fault(t, "postgres") }); got.failed != "" || !strings.Contains(got.skipped, "NOT TESTED") {
			t.Errorf("%+v", got)
		}
	}
}

// services.sh and this package must agree on the addresses.
func TestEnvIsWhatWeThink(t *testing.T) {
	unset(t)
	out, err := run("env", "kafka")
	if err != nil {
		t.Fatal(err, out)
	}
	for _, s := range servers {
		if line := fmt.Sprintf("export %s='%s'\n", s.variable, s.ours()); !strings.Contains(out, line) {
			t.Errorf("no %q in %q", line, out)
		}
	}
}

// A server of its own, so that nothing else is disturbed: PostgreSQL, the quickest of them.
func TestFaults(t *testing.T) {
	if Postgres(t); os.Getenv("SPILLWAY_POSTGRES") != "" {
		t.Skip("services: PostgreSQL is given, so it need not be installed here")
	}
	unset(t)
	folder, err := os.MkdirTemp("/var/tmp", "spillway-faults-") // not t.TempDir, which other users cannot enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SPILLWAY_SERVICES_DIR", folder)
	t.Setenv("SPILLWAY_POSTGRES_PORT", closedPort(t))
	if out, err := run("up", "postgres"); err != nil {
		t.Fatalf("up: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := run("down", "postgres"); err != nil {
			t.Errorf("down: %v\n%s", err, out)
		}
	})
	answers := func(want bool) {
		t.Helper()
		if _, err := Lookup("postgres"); (err == nil) != want {
			t.Errorf("answers %v, want %v: %v", err == nil, want, err)
		}
	}
	answers(true)
	Kill(t, "postgres")
	answers(false)
	Start(t, "postgres")

	// A backend whose parent is gone is of this server too: while it lives, PostgreSQL does not start. It may have been forked
	// while kill listed what to kill.
	conn, err := pgconn.Connect(t.Context(), servers[3].ours())
	if err != nil {
		t.Fatal(err)
	}
	asked, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	busy.Go(func() { _ = conn.Exec(asked, "SELECT count(*) FROM generate_series(1, 1000000000)").Close() })
	other, err := pgconn.Connect(t.Context(), servers[3].ours())
	if err != nil {
		t.Fatal(err)
	}
	for active := "0"; active != "1"; time.Sleep(10 * time.Millisecond) {
		results, err := other.Exec(t.Context(),
			fmt.Sprintf("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND pid = %d", conn.PID())).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		active = string(results[0].Rows[0][0])
	}
	parent, err := os.ReadFile(filepath.Join(folder, "postgres.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(parent)))
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	Start(t, "postgres")
	cancel()
	busy.Wait()
	answers(true)

	// A server that does not come back with its data must fail the test, not come back empty; "up" may start anew.
	Kill(t, "postgres")
	if err := os.Remove(filepath.Join(folder, "postgres", "data", "global", "pg_control")); err != nil {
		t.Fatal(err)
	}
	if got := try(func(t testing.TB) { Start(t, "postgres") }); !strings.Contains(got.failed, "pg_control") {
		t.Errorf("start without its data: %+v", got)
	}
	if out, err := run("up", "postgres"); err != nil || !strings.Contains(out, "starting anew") {
		t.Errorf("up without its data: %v\n%s", err, out)
	}
}
