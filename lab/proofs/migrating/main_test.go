package migrating_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/shop"
)

func TestMain(m *testing.M) {
	// A router whose Run fails at start-up leaves this goroutine of its own behind.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/message.(*Router).watchAllHandlersStopped.func1"))
}

// Each statement of docs/migrating.md has a test here, and each test is named there.
func TestMigratingStatementsAreTested(t *testing.T) {
	page := read("../../../docs/migrating.md")
	files := testkit.Must(filepath.Glob("*_test.go"))
	for _, file := range files {
		for line := range strings.Lines(read(file)) {
			if rest, ok := strings.CutPrefix(line, "func TestMigrating"); ok {
				name, _, _ := strings.Cut("TestMigrating"+rest, "(")
				testkit.Check(t, name == "TestMigratingStatementsAreTested" || strings.Contains(page, "`"+name+"`"),
					"docs/migrating.md does not name %s", name)
			}
		}
	}
}

func read(path string) string { return string(testkit.Must(os.ReadFile(path))) }

// Promise P7: after docs/upgrading.md's rename of a service, what was applied before is absorbed.
func TestRenamedService(t *testing.T) {
	_, rest, found := strings.Cut(read("../../../docs/upgrading.md"), "```sql\n")
	rename, _, _ := strings.Cut(rest, "```")
	testkit.Require(t, found, "docs/upgrading.md has no statement")
	for renamed, want := range map[bool]map[string]string{true: {"shop": "applied", "store": "absorbed"}, false: {"shop": "applied", "store": "applied"}} {
		b := shop.New(t, false)
		for _, service := range []string{"shop", "store"} {
			keys := testkit.Must(idempotency.NewStore(t.Context(), b.DB, service))
			outcome := make(chan string, 1)
			ch := b.Channel(func(c *spillway.Config) {
				c.Idempotency = keys
				c.Receiver = &idempotency.ReceiverConfig{
					Hooks: idempotency.Hooks{
						OnApplied:   func(context.Context, idempotency.Key) { outcome <- "applied" },
						OnDuplicate: func(context.Context, idempotency.Key) { outcome <- "absorbed" },
					},
				}
			})
			stop := b.Run(ch.Attach, func(msg *message.Message) ([]*message.Message, error) { return nil, b.Apply(msg) })
			b.Publish(message.NewMessage("order", nil))
			got := <-outcome
			testkit.Check(t, got == want[service], "renamed %v, under %s: %s", renamed, service, got)
			stop()
			if renamed && service == "shop" {
				testkit.Must(b.DB.Exec(rename))
			}
		}
	}
}
