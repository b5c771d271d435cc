package idempotency_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

// messagesVariable says how many messages the consumers share. Default: 60.
const messagesVariable = "SPILLWAY_IDEMPOTENCY_MESSAGES"

// Features I1, I2, promise P7: eight processes' worth of pools share one database and take turns at messages that all
// come three times, in random order. SQLite's processes wait for one lock, in WAL mode and with a busy time-out as its
// documentation asks for: no delivery is told busy there either, and what a process costs the others is its commits.
func TestConsumers(t *testing.T) {
	row{"P7-eight", "8 consumers on the same messages, each delivered 3 times in random order: one effect each", nil}.on(t,
		func(t *testing.T, d database) { newCell(t, d).eight(number(t, messagesVariable, 60)) })
}

func (c *cell) eight(messages int) {
	const times, consumers = 3, 8
	random, queue := testkit.Random(c), make(chan int, times*messages)
	for _, i := range random.Perm(times * messages) {
		queue <- i % messages
	}
	close(queue)
	c.store(c.db)
	var applied, absorbed, called atomic.Int64
	var all sync.WaitGroup
	for range consumers {
		db := c.open(c, c.address)
		h := c.receiverOn(c.store(db), idempotency.ReceiverConfig{
			Hooks: idempotency.Hooks{
				OnApplied:   func(context.Context, idempotency.Key) { applied.Add(1) },
				OnDuplicate: func(context.Context, idempotency.Key) { absorbed.Add(1) },
			},
		}).Middleware(c.writeAnd(func(msg *message.Message) ([]*message.Message, error) {
			called.Add(1)
			return []*message.Message{message.NewMessage("", []byte(msg.UUID))}, nil
		}))
		all.Go(func() {
			for i := range queue {
				out, err := h(newMessage(fmt.Sprint("m", i)))
				if err != nil || len(out) != 1 || string(out[0].Payload) != fmt.Sprint("m", i) {
					c.Errorf("message %d: %v, %v", i, out, err)
					return
				}
			}
		})
	}
	all.Wait()
	if applied.Load() != int64(messages) || called.Load() != int64(messages) || absorbed.Load() != int64((times-1)*messages) {
		c.Errorf("%d calls, %d applied, %d absorbed; want %d, %[4]d and %d",
			called.Load(), applied.Load(), absorbed.Load(), messages, (times-1)*messages)
	}
	c.rows(messages, messages)
	n := count(c, c.db, `(SELECT DISTINCT id FROM effects) AS d`)
	testkit.Check(c, n == messages, "effects of %d messages, want %d", n, messages)
}
