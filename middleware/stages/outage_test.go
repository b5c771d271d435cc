package stages_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/stages"
)

// Feature R12: a downstream is unavailable for hours when messages come out of their stage. They wait, and count
// nothing. No message that is held by the breaker is held for longer than its broker allows, such as RabbitMQ's consumer_timeout.
func TestOutageOfHours(t *testing.T) {
	const from, until = 5 * time.Minute, 3 * time.Hour
	for name, row := range map[string]struct {
		messages   int
		prefetch   int
		holds      time.Duration // what the adapter says
		lasts      time.Duration // after which the broker takes the message away
		redelivers time.Duration // what the subscriber says of that; less than 0 is nothing
	}{
		"as Kafka":                {messages: 8, prefetch: 1, holds: 24 * time.Hour},
		"as RabbitMQ, one by one": {messages: 8, prefetch: 10, holds: 15 * time.Minute, lasts: 26 * time.Minute},
		"as a stock, one by one":  {messages: 120, prefetch: 120, lasts: 26 * time.Minute, redelivers: 30 * time.Minute},
		"as an unknown one":       {messages: 8, prefetch: 10, lasts: 26 * time.Second, redelivers: -1},
		"as JetStream":            {messages: 10, prefetch: 10, lasts: 30 * time.Second, redelivers: 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStaging(t, stages.Config{Stages: []stages.Stage{{Delay: 10 * time.Minute}, {Delay: time.Hour}}, Jitter: -1}, nil)
				s.broker.prefetch, s.broker.holds, s.broker.redelivers = row.prefetch, row.holds, row.redelivers
				s.broker.lasts = func(string) time.Duration { return row.lasts }
				outages, err := breaker.New(breaker.Config{Doubt: until, MinMessages: 1000}) // what fails at first, or alone, goes to its stage
				testkit.NoError(t, err)
				if s.router, err = message.NewRouter(message.RouterConfig{CloseTimeout: time.Hour}, watermill.NopLogger{}); err != nil {
					t.Fatal(err)
				}
				s.router.AddMiddleware(chain.EnterParts(newQueue(s, s.letters), s.stages, newRetry(s, middleware.RetryConfig{}), outages, chain.Recover))
				s.router.AddPlugin(s.stages.Plugin)
				var calls atomic.Int64 // while the downstream is unavailable
				done, start := newNote(), time.Now()
				s.handle("billing", "orders", func(msg *message.Message) error {
					switch since := time.Since(start); {
					case since < from:
						return errBoom
					case since < until:
						calls.Add(1)
						return classify.Unavailable(errBoom)
					}
					done.add(msg)
					return nil
				})
				s.run()
				for i := range row.messages {
					s.publish("orders", fmt.Sprint(i))
				}
				time.Sleep(until + 10*time.Minute)
				s.stop()
				probes := int64((until - from) / (2 * time.Second))
				if n := len(done.by); n != row.messages || len(s.letters.all()) > 0 || s.broker.times("orders.billing.retry.1h") > 0 {
					t.Errorf("%d are handled, %d are dead-lettered, %d went on to the next stage", n, len(s.letters.all()), s.broker.times("orders.billing.retry.1h"))
				}
				testkit.Check(t, s.broker.lost <= 0, "the broker took %d messages away", s.broker.lost)
				if n := calls.Load(); n == 0 || n > probes {
					t.Errorf("%d calls while the downstream is unavailable, at most %d are probes", n, probes)
				}
				for id := range done.by {
					if one := done.of(id); len(one) != 1 || one[0].metadata["x-attempts"] != "" && one[0].metadata["x-attempts"] != "1" {
						t.Errorf("%s: %+v", id, one)
					}
				}
				t.Logf("%d calls; published to the stage %d times", calls.Load(), s.broker.times("orders.billing.retry.10m"))
			})
		})
	}
}
