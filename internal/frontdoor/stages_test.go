package frontdoor_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/delay"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/shop"
	"github.com/watermill-spillway/spillway/middleware/stages"
)

func delayStore(t testing.TB, db *sql.DB) *delay.Store {
	return testkit.Must(delay.NewStore(t.Context(), db, "shop"))
}

// staged configures stages on the bench's own pub/sub.
func (b *bench) staged(store *delay.Store) func(*spillway.Config) {
	return func(c *spillway.Config) {
		c.Retry.Attempts = 0
		c.Stages = &stages.Config{
			Publisher:  b.Source,
			Subscriber: func(string, string) (message.Subscriber, error) { return shop.StaysOpen(b.Source), nil },
			Stages:     stages.Delays(20*time.Millisecond, 50*time.Millisecond),
			Store:      store,
		}
	}
}

// runStaged is bench.run with stages.
func (b *bench) runStaged(ch *spillway.Channel, handle message.HandlerFunc) (stop func()) {
	b.T.Helper()
	return testkit.RunRouter(b.T, watermill.NopLogger{}, func(router *message.Router) {
		ch.Attach(router)
		if _, err := ch.Stages().AddHandler(router, "billing", "orders", shop.StaysOpen(b.Source), "invoices", b.Outs, handle); err != nil {
			b.T.Fatal(err)
		}
	})
}

// Feature I8: keys must outlast the stages too.
func TestPurgeKnowsTheStages(t *testing.T) {
	b := newBench(t, false)
	for total, warned := range map[time.Duration]bool{time.Minute: false, 2 * time.Hour: true} {
		log := watermill.NewCaptureLogger()
		b.Channel(b.staged(nil), func(c *spillway.Config) {
			c.Logger = log
			c.Stages.Stages = stages.Delays(total)
			c.Purge = &idempotency.PurgeConfig{Retention: 2 * time.Hour, Horizon: time.Hour}
		})
		got := len(log.Captured()[watermill.ErrorLogLevel]) > 0
		testkit.Check(t, got == warned, "stages of %s: warned %t", total, got)
	}
}

// With a Store and without the plugin nothing would ever move, and that is an error of the start.
func TestStoreWantsThePlugin(t *testing.T) {
	b := newBench(t, false)
	ch := b.Channel(b.staged(delayStore(t, b.DB)))
	router := testkit.Must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
	added, err := ch.Stages().AddConsumerHandler(router, "billing", "orders", shop.StaysOpen(b.Source), func(*message.Message) error { return nil })
	testkit.NoError(t, err)
	added.AddMiddleware(ch.Middleware)
	told := make(chan error, 2)
	router.AddSubscriberDecorators(func(sub message.Subscriber) (message.Subscriber, error) { return noting{sub, told}, nil })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- router.Run(ctx) }()
	if err := <-told; !strings.Contains(err.Error(), "Stages.Plugin") {
		t.Errorf("started: %v", err)
	}
	cancel()
	testkit.NoError(t, errors.Join(router.Close(), <-done))
}

// noting notes the error of a subscription in place of returning it: a router that could not start leaves goroutines.
type noting struct {
	message.Subscriber
	told chan<- error
}

func (n noting) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	messages, err := n.Subscriber.Subscribe(ctx, topic)
	if err == nil {
		return messages, nil
	}
	n.told <- err
	nothing := make(chan *message.Message)
	context.AfterFunc(ctx, func() { close(nothing) })
	return nothing, nil
}

// refusing refuses what goes to re-entry topics, for its size.
type refusing struct{ message.Publisher }

func (refusing) Publish(string, ...*message.Message) error { return classify.ErrTooLarge }

// Promise P4: a message that is too large to enter again is set aside with its story, and leaves the store.
func TestTooLargeToReenter(t *testing.T) {
	b := newBench(t, false)
	store := delayStore(t, b.DB)
	ch := b.Channel(b.staged(store), func(c *spillway.Config) { c.Stages.Publisher = refusing{b.Source} })
	stop := b.runStaged(ch, func(*message.Message) ([]*message.Message, error) { return nil, classify.Transient(errors.New("503")) })
	defer stop()
	b.Publish(message.NewMessage("large", nil))
	b.Eventually("it is set aside", func() bool { return len(b.Waiting()) == 1 })
	letter := b.Waiting()[0].Letter
	if letter.Origin.Topic != "orders" || letter.Origin.Handler != "billing" || len(letter.Failure.History) != 2 || !strings.Contains(letter.Failure.Description, "too large") {
		t.Errorf("%+v", letter)
	}
	b.Eventually("it left the store", func() bool {
		waiting, err := store.Inside().Waiting(t.Context())
		return err == nil && len(waiting) == 0
	})
}
