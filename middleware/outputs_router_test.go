package middleware_test

import (
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware"
)

var quick = every(time.Millisecond)

// echo produces one output named after its message, spoils the message, and counts its invocations by id.
type echo struct {
	mu    sync.Mutex
	calls map[string]int
}

func (e *echo) handle(m *message.Message) ([]*message.Message, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.calls == nil {
		e.calls = make(map[string]int)
	}
	e.calls[m.UUID]++
	id := "out of " + m.UUID
	_, _ = producing()(m)
	return producing(id)(m)
}

func (e *echo) called(id string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls[id]
}

// serving runs a router with the handler of e behind o, and publishes messages with the ids to it.
func serving(t testing.TB, o *middleware.Outputs, pub message.Publisher, e *echo, ids ...string) (stop func()) {
	source := newChannel(gochannel.Config{})
	stop = running(t, func(r *message.Router) {
		r.AddMiddleware(o.Middleware)
		r.AddPublisherDecorators(o.Decorate)
		r.AddHandler("billing", "orders", source, "invoices", pub, e.handle)
	})
	publish(t, source, "orders", ids...)
	return stop
}

// Feature D15, promise P4: a message whose output no publisher takes is set aside, its handler ran once, and the
// message behind it goes on. Without Outputs the handler runs without end and the next one is never handled.
func TestRouterUndeliverableOutput(t *testing.T) {
	dead, e := &publisher{}, &echo{}
	pub := &publisher{refuse: refusing("out of 1", 999, errBoom)}
	o := newOutputs(t, dead, middleware.OutputsConfig{Backoff: quick})
	stop := serving(t, o, pub, e, "1", "2")
	eventually(t, "both are settled", func() bool { return len(dead.ids()) == 1 && len(pub.ids()) == 1 })
	stop()
	testkit.Require(t, e.called("1") == 1 && e.called("2") == 1 && pub.tries("out of 1") == 5 &&
		pub.ids()[0] == "out of 2", "handled %v, published %v", e.calls, pub.ids())
	letter := dead.letters(t)[0]
	wantSetAside(t, letter, "out of 1", errBoom)
	if o := letter.Origin; o.Topic != "orders" || o.Handler != "billing" || o.MessageID != "1" {
		t.Errorf("the origin is %+v", o)
	}
}

// Promise P3, feature R1: the router closes in a retry's wait. Watermill's own Retry and PoisonQueue publish the
// message with the reason "context canceled" then.
func TestRouterClosesWhileRetrying(t *testing.T) {
	source, dead, failed := newChannel(gochannel.Config{}), &publisher{}, make(chan *message.Message, 9)
	stop := running(t, func(r *message.Router) {
		r.AddMiddleware(newQueue(t, dead).Middleware, newRetry(t, middleware.RetryConfig{Backoff: every(time.Hour)}).Middleware)
		r.AddConsumerHandler("billing", "orders", source, func(m *message.Message) error {
			_, _ = producing()(m)
			failed <- m
			return errBoom
		})
	})
	publish(t, source, "orders", "1")
	msg := <-failed
	stop()
	testkit.Require(t, len(dead.ids()) == 0 && closed(msg.Nacked()) && msg.Equals(newMessage("1")),
		"%d letters, the source is %v %q", len(dead.ids()), msg.Metadata, msg.Payload)
}
