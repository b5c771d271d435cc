package idempotency_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/observe"
)

// Bad input, promise P4: handlers that write through the *sql.DB wait for connections that the claims of others hold.
// That is logged, once, with what to do.
func TestPoolUsedUp(t *testing.T) {
	onEach(t, kinds[1:], func(c *cell) {
		logger := &testkit.Log{}
		c.db.SetMaxOpenConns(4)
		r := c.receiver(idempotency.ReceiverConfig{Shared: observe.Shared{Logger: logger}})
		ctx, cancel := context.WithCancel(c.Context())
		defer cancel()
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for n := 0; ctx.Err() == nil; n++ { // a claim that meets a deadlock is given back, and the next one takes its place
					msg := newMessage(fmt.Sprintf("%d-%d", i, n))
					msg.SetContext(ctx)
					_, _ = r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
						eventually(c, "all connections are in use", func() bool { return c.db.Stats().InUse == 4 || ctx.Err() != nil })
						_, err := c.db.ExecContext(msg.Context(), inEffects(msg.UUID))
						return nil, err
					})(msg)
				}
			})
		}
		eventually(c, "it is logged", func() bool { return len(logger.Errors()) > 0 })
		cancel()
		all.Wait()
		if notified := logger.Errors(); len(notified) != 1 || !strings.Contains(notified[0].String(), "SetMaxOpenConns") || notified[0].Fields["max_open_connections"] != 4 {
			c.Errorf("%q", notified)
		}
	})
}

// Bad input, promise P4: two receivers with two pools on one database: the inner claim waits for the outer one of its
// own message. It ends, says so, and does not wait for ever.
func TestTwoPoolsOneDatabase(t *testing.T) {
	onEach(t, kinds[1:], func(c *cell) {
		outer := c.receiver(idempotency.ReceiverConfig{})
		inner := c.receiverOn(c.store(c.open(c, c.address)), idempotency.ReceiverConfig{})
		testkit.Within(c, "the inner claim ends", func() {
			_, err := outer.Middleware(inner.Middleware(c.write))(newMessage("m1"))
			testkit.Check(c, requeued(err) && strings.Contains(err.Error(), "give the handler one receiver"), "%v", err)
		})
		c.rows(0, 0)
	})
}
