package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/middleware"
)

// Feature R11: messages that need more retries than the budget has wait for it, and are requeued if the wait is long.
// Retries keep to the budget, each message takes effect once, and none is set aside.
func (b *bench) retryBudget() {
	const messages, perSecond = 60, 20
	var retries, waits atomic.Int64
	var first sync.Once
	var began time.Time
	ch := b.channel(func(c *spillway.Config) {
		c.Retry.Budget = &middleware.Budget{Share: -1, PerSecond: perSecond, TTL: time.Second}
		c.Retry.NotNowHold = 150 * time.Millisecond
		c.Retry.Hooks.OnRetry = func(context.Context, middleware.Attempt, time.Duration) {
			first.Do(func() { began = time.Now() })
			retries.Add(1)
		}
		c.Retry.Hooks.OnBudgetSpent = func(context.Context, middleware.BudgetSpent) { waits.Add(1) }
	})
	var failed sync.Map // deliveries
	b.start(ch, func(msg *message.Message) ([]*message.Message, error) {
		if _, again := failed.LoadOrStore(msg, true); !again {
			return nil, errors.New("once in each delivery")
		}
		return nil, b.apply(msg)
	})
	ids := make([]string, messages)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	b.ids(ids...)
	b.untilApplied(ids...)
	b.wantOnce(ids...)
	if n := b.placed.Load() + b.discarded.Load(); n > 0 {
		b.Errorf("%d messages are set aside", n)
	}
	// a slower machine keeps to it anyway
	if took := time.Since(began); waits.Load() == 0 && took < (messages/perSecond-1)*time.Second {
		b.Errorf("%d retries in %s, and the budget was never spent", retries.Load(), took)
	}
	if n, most := retries.Load(), perSecond*(int64(time.Since(began)/time.Second)+2); n < messages || n > most {
		b.Errorf("%d retries, of at most %d in this time", n, most)
	}
}
