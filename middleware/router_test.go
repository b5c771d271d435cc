package middleware_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/middleware"
)

// partition is a subscriber like those of Kafka and SQL: one message in flight, and a nack redelivers a copy of the
// message that the handler changed, before the next one.
type partition struct {
	messages []*message.Message

	mu         sync.Mutex
	deliveries []*message.Message // each as it was when it was delivered
	acked      int
	closing    chan struct{}
	wg         sync.WaitGroup
}

func newPartition(ids ...string) *partition {
	p := &partition{closing: make(chan struct{})}
	for _, id := range ids {
		p.messages = append(p.messages, newMessage(id))
	}
	return p
}

func (p *partition) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	p.wg.Go(func() {
		defer close(out)
		for _, msg := range p.messages {
			for !p.deliver(ctx, out, msg) {
				if ctx.Err() != nil || closed(p.closing) {
					return
				}
				msg = msg.Copy()
			}
		}
		select {
		case <-p.closing:
		case <-ctx.Done():
		}
	})
	return out, nil
}

// deliver reports whether the message was acked. Its context ends with the delivery and with the subscriber.
func (p *partition) deliver(ctx context.Context, out chan<- *message.Message, msg *message.Message) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	msg.SetContext(ctx)
	p.mu.Lock()
	seen := msg.Copy()
	seen.Payload = append(message.Payload(nil), msg.Payload...)
	p.deliveries = append(p.deliveries, seen)
	p.mu.Unlock()
	select {
	case out <- msg:
	case <-p.closing:
		return false
	}
	select {
	case <-msg.Acked():
		p.mu.Lock()
		p.acked++
		p.mu.Unlock()
		return true
	case <-msg.Nacked():
	case <-p.closing:
	}
	return false
}

func (p *partition) Close() error {
	close(p.closing)
	p.wg.Wait()
	return nil
}

func (p *partition) state() (deliveries []*message.Message, acked int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.deliveries, p.acked
}

func (p *partition) drained() bool {
	_, acked := p.state()
	return acked == len(p.messages)
}

// running runs a router with the handlers that add adds, and returns the function that closes it.
func running(t testing.TB, add func(*message.Router)) (stop func()) {
	return testkit.RunRouter(t, watermill.NopLogger{}, add)
}

var eventually = testkit.Eventually

func newChannel(config gochannel.Config) *gochannel.GoChannel {
	return gochannel.NewGoChannel(config, watermill.NopLogger{})
}

func publish(t testing.TB, pub message.Publisher, topic string, messages ...*message.Message) {
	t.Helper()
	testkit.NoError(t, pub.Publish(topic, messages...))
}

// Promise P1: a handler without a publisher works under the decorator; an output that a middleware invents for it is
// undeliverable, and its source set aside.
func TestRouterConsumerHandlers(t *testing.T) {
	source, dead := newPartition("1", "2"), &publisher{}
	o := newOutputs(t, dead, middleware.OutputsConfig{Attempts: 2, Backoff: quick})
	invent := func(h message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			out, err := h(m)
			if m.UUID == "1" {
				out = append(out, message.NewMessage("invented", nil))
			}
			return out, err
		}
	}
	var handled atomic.Int64
	stop := running(t, func(r *message.Router) {
		r.AddMiddleware(o.Middleware, invent)
		r.AddPublisherDecorators(o.Decorate)
		r.AddConsumerHandler("billing", "orders", source, func(*message.Message) error { handled.Add(1); return nil })
		r.AddHandler("nobody", "none", newPartition(), "", nil, (&echo{}).handle) // Watermill allows it
	})
	eventually(t, "both sources are acked", source.drained)
	stop()
	letters := dead.letters(t)
	testkit.Require(t, handled.Load() == 2 && len(letters) == 1, "%d handled, %d letters", handled.Load(), len(letters))
	if l := letters[0]; l.Failure.Reason != classify.ReasonOutput || !strings.Contains(l.Failure.Description, `"invented"`) {
		t.Errorf("set aside with %q, %q", l.Failure.Reason, l.Failure.Description)
	}
}
