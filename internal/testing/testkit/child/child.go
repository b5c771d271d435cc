// Package child runs a test's program as a process of its own, which is killed: what it leaves behind is what a crash
// leaves.
package child

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// variable holds the order of a child.
const variable = "SPILLWAY_TEST_CHILD"

// Main is for TestMain, before anything else. In a process of Command it runs do with the order, and ends the process.
// Elsewhere it does nothing.
func Main[Order any](do func(Order) error) {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	var order Order
	err := json.Unmarshal([]byte(text), &order)
	if err == nil {
		err = do(order)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Command returns this program as a child with an order.
func Command(t testing.TB, order any) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(order)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env, cmd.Stderr = append(os.Environ(), variable+"="+string(text)), os.Stderr
	return cmd
}

// Killed runs a child with an order until it ends, and fails the test unless the child killed itself.
func Killed(t testing.TB, order any) {
	t.Helper()
	cmd := Command(t, order)
	stdin := testkit.Must(cmd.StdinPipe())
	defer time.AfterFunc(testkit.Patience, func() { _ = stdin.Close() }).Stop()
	err := cmd.Run()
	testkit.Check(t, cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == -1, "a child that was to die: %v", err)
}

// Context ends when the child's input does. A parent that closes it, or ends, ends its child in order.
func Context() (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(context.Background())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }()
	return ctx, stop
}

// Kill ends this process without a word, as SIGKILL does. It does not return.
func Kill() {
	self, _ := os.FindProcess(os.Getpid())
	_ = self.Kill()
	select {}
}

// Driver names the driver of a kind of database of package databases, for a child that has no test to open it with.
func Driver(kind string) string {
	return map[string]string{"sqlite": "sqlite", "postgres": "pgx", "mariadb": "mysql"}[kind]
}
