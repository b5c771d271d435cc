package middleware_test

import (
	"slices"
	"sync"
	"sync/atomic"
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

// serving runs a router with the handler of e behind o.
func serving(t testing.TB, o *middleware.Outputs, source message.Subscriber, pub message.Publisher, e *echo) (stop func()) {
	return running(t, func(r *message.Router) {
		r.AddMiddleware(o.Middleware)
		r.AddPublisherDecorators(o.Decorate)
		r.AddHandler("billing", "orders", source, "invoices", pub, e.handle)
	})
}

// Feature D15, promise P4: a message whose output no publisher takes is set aside, its handler ran once, and the
// message behind it goes on. Without Outputs the handler runs without end and the next one is never handled.
func TestRouterUndeliverableOutput(t *testing.T) {
	source, dead, e := newPartition("1", "2"), &publisher{}, &echo{}
	pub := &publisher{refuse: refusing("out of 1", 999, errBoom)}
	o := newOutputs(t, dead, middleware.OutputsConfig{Backoff: quick})
	stop := serving(t, o, source, pub, e)
	eventually(t, "both sources are acked", source.drained)
	stop()
	letters := dead.letters(t)
	if len(letters) != 1 || e.called("1") != 1 || e.called("2") != 1 || pub.tries("out of 1") != 5 || !slices.Equal(pub.ids(), []string{"out of 2"}) {
		t.Fatalf("%d letters, handled %v, published %v", len(letters), e.calls, pub.ids())
	}
	wantSetAside(t, letters[0], "out of 1", errBoom)
	if o := letters[0].Origin; o.Topic != "orders" || o.Handler != "billing" || o.MessageID != "1" {
		t.Errorf("the origin is %+v", o)
	}
}

// Feature D15: the same on gochannel, where hundreds of handlers run at once and a nack comes back at once.
func TestRouterManyAtOnce(t *testing.T) {
	const messages = 300
	in, dead, e := newChannel(gochannel.Config{}), &publisher{}, &echo{}
	var tries sync.Map // refuses the first two of each, and those of every tenth for good
	pub := &publisher{refuse: func(_ string, msg *message.Message) error {
		n, _ := tries.LoadOrStore(msg.UUID, new(atomic.Int64))
		if n.(*atomic.Int64).Add(1) <= 2 || msg.UUID[len(msg.UUID)-1] == '0' {
			return errBoom
		}
		return nil
	}}
	o := newOutputs(t, dead, middleware.OutputsConfig{Backoff: quick})
	serving(t, o, in, pub, e)
	for i := range messages {
		publish(t, in, "orders", newMessage("m"+string(rune('a'+i/10))+string(rune('0'+i%10))))
	}
	eventually(t, "all are published or set aside", func() bool { return len(pub.ids())+len(dead.ids()) == messages })
	testkit.Check(t, len(dead.ids()) == messages/10 && len(e.calls) == messages, "%d letters", len(dead.ids()))
	for id := range e.calls {
		testkit.Check(t, e.called(id) == 1, "the handler of %q ran %d times", id, e.called(id))
	}
	for _, l := range dead.letters(t) {
		if !l.Original.Equals(newMessage(l.Original.UUID)) {
			t.Errorf("the letter of %q holds %v %q", l.Original.UUID, l.Original.Metadata, l.Original.Payload)
		}
	}
}

// Promises P1 and P2: while the dead letter is refused too, the source is nacked and redelivered as it arrived, and
// nothing is lost.
func TestRouterLetterRefused(t *testing.T) {
	source, e := newPartition("1", "2"), &echo{}
	dead := &publisher{refuse: refusing("1", 7, errBoom)} // of three tries each
	pub := &publisher{refuse: refusing("out of 1", 999, errBoom)}
	o := newOutputs(t, dead, middleware.OutputsConfig{Attempts: 2, Backoff: quick})
	stop := serving(t, o, source, pub, e)
	eventually(t, "both sources are acked", source.drained)
	stop()
	deliveries, _ := source.state()
	if len(deliveries) != 4 || e.called("1") != 3 || e.called("spoiled") != 0 || len(dead.ids()) != 1 {
		t.Errorf("%d deliveries, handled %v, %d letters", len(deliveries), e.calls, len(dead.ids()))
	}
	for _, d := range deliveries[:3] {
		if !d.Equals(newMessage("1")) {
			t.Errorf("redelivered as %q %v %q", d.UUID, d.Metadata, d.Payload)
		}
	}
}

// Promise P3: the router closes while an output is refused: nothing is set aside, and the source comes again.
func TestRouterClosesWhileOutputsAreRefused(t *testing.T) {
	for _, attempts := range []int{2, 99} {
		source, dead, e, refused := newPartition("1"), &publisher{}, &echo{}, make(chan struct{}, 99)
		pub := &publisher{refuse: func(string, *message.Message) error { refused <- struct{}{}; return errBoom }}
		o := newOutputs(t, dead, middleware.OutputsConfig{Attempts: attempts, Backoff: every(time.Hour)})
		stop := serving(t, o, source, pub, e)
		<-refused
		stop()
		msg := source.messages[0]
		if _, acked := source.state(); acked != 0 || len(dead.ids()) != 0 || !closed(msg.Nacked()) || !msg.Equals(newMessage("1")) {
			t.Errorf("%d acked, %d letters, the source is %v %q", acked, len(dead.ids()), msg.Metadata, msg.Payload)
		}
	}
}

// Promise P3, feature R1: the router closes in a retry's wait. Watermill's own Retry and PoisonQueue publish the
// message with the reason "context canceled" then.
func TestRouterClosesWhileRetrying(t *testing.T) {
	source, dead, failed := newPartition("1"), &publisher{}, make(chan struct{})
	stop := running(t, func(r *message.Router) {
		r.AddMiddleware(newQueue(t, dead).Middleware, newRetry(t, middleware.RetryConfig{Backoff: every(time.Hour)}).Middleware)
		r.AddConsumerHandler("billing", "orders", source, func(m *message.Message) error {
			_, _ = producing()(m)
			close(failed)
			return errBoom
		})
	})
	<-failed
	stop()
	msg := source.messages[0]
	if len(dead.ids()) != 0 || !closed(msg.Nacked()) || !msg.Equals(newMessage("1")) {
		t.Fatalf("%d letters, the source is %v %q", len(dead.ids()), msg.Metadata, msg.Payload)
	}
}
