package migrating_test

import (
	"context"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/shop"
)

// Promise P7: after the rename of a service, with the statement of docs/upgrading.md, a message that was applied before
// is absorbed. Without the statement it is applied again.
func TestRenamedService(t *testing.T) {
	_, rest, found := strings.Cut(read(t, "../../../docs/upgrading.md"), "```sql\n")
	rename, _, _ := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/upgrading.md has no statement")
	}
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
			if got := <-outcome; got != want[service] {
				t.Errorf("renamed %v, under %s: %s", renamed, service, got)
			}
			stop()
			if renamed && service == "shop" {
				testkit.Must(b.DB.Exec(rename))
			}
		}
	}
}
