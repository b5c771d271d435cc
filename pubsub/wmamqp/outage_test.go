package wmamqp_test

import (
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/pubsub/wmamqp"
)

// downstream is what a handler calls, and is away at first.
type downstream struct {
	back atomic.Bool

	mu     sync.Mutex
	done   map[string]bool
	latest map[string]*message.Message // delivery of each message
	times  map[string]int              // that each was delivered
	most   int                         // of these
}

func (d *downstream) handle(msg *message.Message) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.latest[msg.UUID] != msg { // each attempt at a delivery has the same one
		d.latest[msg.UUID] = msg
		d.times[msg.UUID]++
		d.most = max(d.most, d.times[msg.UUID])
	}
	if !d.back.Load() {
		return classify.Away(errors.New("connection refused"))
	}
	d.done[msg.UUID] = true
	return nil
}

func (d *downstream) seen() (most, done int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.most, len(d.done)
}

// Feature R12, promise P3: in an outage that is many times longer than a message may be held, messages are requeued and
// held again. The broker closes no channel, no message is counted, dead-lettered or lost, and the outage does not use
// up the crash limit.
//
// SPILLWAY_CONSUMER_TIMEOUT is the consumer_timeout of the broker if it was set low for this test. Then messages are
// held for half of it, four times. The broker looks every channel_tick_interval, which must be low too:
//
//	rabbitmqctl eval 'application:set_env(rabbit, consumer_timeout, 10000), application:set_env(rabbit, channel_tick_interval, 1000).'
func TestHeldInLongOutage(t *testing.T) {
	t.Parallel()
	hold := 300 * time.Millisecond
	if timeout, err := time.ParseDuration(os.Getenv("SPILLWAY_CONSUMER_TIMEOUT")); err == nil {
		hold = timeout / 2
	}
	for name, change := range map[string]func(*wmamqp.SubscriberConfig){
		"one": prefetch(1), "prefetched": prefetch(4), "in flight": inFlight(3),
	} {
		for _, kind := range kinds {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				b := newBroker(t)
				topic := b.queue(kind)
				ids := b.numbered(topic, 6)
				logger := &testkit.Log{}
				down := &downstream{done: map[string]bool{}, latest: map[string]*message.Message{}, times: map[string]int{}}
				sub := b.subscriber(change, func(c *wmamqp.SubscriberConfig) { c.MaxHold, c.Logger = hold, logger })
				dead := b.publisher()
				testkit.NoError(t, dead.InitializeTopics(topic+".dlq", topic+".invalid"))
				dlc := testkit.Must(spillway.New(t.Context(), spillway.Config{
					Publisher: dead, Queue: poison.QueueConfig{Origin: wmamqp.Origin},
					CrashLimit: &crashlimit.Config{Max: 2, Delivered: wmamqp.DeliveryCount},
					Breaker:    &breaker.Config{Probe: 50 * time.Millisecond, MaxProbe: 50 * time.Millisecond},
				}))
				testkit.RunRouter(t, watermill.NopLogger{}, func(router *message.Router) {
					dlc.Attach(router)
					router.AddConsumerHandler("billing", topic, sub, down.handle)
				})
				eventually(t, "a message was requeued four times", func() bool { n, _ := down.seen(); return n > 4 })
				if _, done := down.seen(); b.ready(topic+".dlq") != 0 || done != 0 {
					t.Errorf("%d letters, and %d messages are handled, in the outage", b.ready(topic+".dlq"), done)
				}
				down.back.Store(true)
				eventually(t, "all are handled", func() bool {
					_, done := down.seen()
					return done == len(ids) && b.ready(topic) == 0
				})
				if n := b.ready(topic + ".dlq"); n != 0 {
					t.Errorf("%d letters", n)
				}
				for _, line := range logger.Errors() {
					if text := strings.ToLower(line.String()); strings.Contains(text, "channel") || strings.Contains(text, "timeout") {
						t.Errorf("logged: %s", line)
					}
				}
			})
		}
	}
}
