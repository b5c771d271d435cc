package outputs_test

import (
	"fmt"
	"github.com/watermill-spillway/spillway/internal/errs"
	"github.com/watermill-spillway/spillway/middleware/outputs"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/hold/outage"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/observe"
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

// Feature D15, promise P4: a message whose output no publisher takes is set aside, its handler ran once, and the
// message behind it goes on. Without Outputs the handler runs without end and the next one is never handled.
func TestRouterUndeliverableOutput(t *testing.T) {
	dead, e := &publisher{}, &echo{}
	pub := &publisher{refuse: refusing("out of 1", 999, errBoom)}
	o := newOutputs(t, dead, outputs.Config{Backoff: quick})
	source := newChannel(gochannel.Config{})
	stop := running(t, func(r *message.Router) {
		r.AddMiddleware(o.Middleware)
		r.AddPublisherDecorators(o.Decorate)
		r.AddHandler("billing", "orders", source, "invoices", pub, e.handle)
	})
	publish(t, source, "orders", "1", "2")
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
	source, dead, failed := newChannel(gochannel.Config{}), &publisher{}, make(chan *message.Message, 1)
	stop := running(t, func(r *message.Router) {
		r.AddMiddleware(newQueue(t, dead).Middleware, newRetry(t, middleware.RetryConfig{Backoff: every(time.Hour)}).Middleware)
		r.AddConsumerHandler("billing", "orders", source, func(m *message.Message) error {
			m.UUID, m.Payload = "spoiled", nil // not its bytes: gochannel gives them to the next delivery too
			select {
			case failed <- m:
			default: // it comes again until the router has closed
			}
			return errBoom
		})
	})
	publish(t, source, "orders", "1")
	msg := <-failed
	stop()
	testkit.Require(t, len(dead.ids()) == 0 && closed(msg.Nacked()) && msg.Equals(newMessage("1")),
		"%d letters, the source is %v %q", len(dead.ids()), msg.Metadata, msg.Payload)
}

// Feature D15, promises P3, P4, decisions 13, 21: sources are held through an outage of their outputs' broker, and
// nacks of minutes cost none. A queue full for good costs one in five minutes. The log has one Error for the outage.
func TestOutputsThroughAnOutage(t *testing.T) {
	unavailable := fmt.Errorf("publish: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	for name, row := range map[string]struct {
		refusal  error
		lasts    time.Duration
		letters  int
		requeued bool
	}{
		"away":               {unavailable, 14 * time.Second, 0, false},
		"nacks for minutes":  {outage.NewNack("nack"), 4 * time.Minute, 0, true},
		"nacks for too long": {outage.NewNack("nack"), 16 * time.Minute, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logger, began := watermill.NewCaptureLogger(), time.Now()
				dead, pub := &publisher{}, &publisher{refuse: func(string, *message.Message) error {
					if time.Since(began) < row.lasts {
						return row.refusal
					}
					return nil
				}}
				o := newOutputs(t, dead, outputs.Config{Shared: observe.Shared{Logger: logger}})
				decorated := decorate(t, o, pub)
				var all sync.WaitGroup
				for i := range 20 {
					all.Go(func() {
						h := producing("a"+strconv.Itoa(i), "b"+strconv.Itoa(i))
						err := route(o, decorated, newMessage(strconv.Itoa(i)), h)
						for ; aborted(err) && row.requeued; err = route(o, decorated, newMessage(strconv.Itoa(i)), h) {
							time.Sleep(10 * time.Millisecond)
						}
						testkit.Check(t, err == nil, "%v", err)
					})
				}
				all.Wait()
				time.Sleep(time.Minute) // the end is logged when failures have stopped for a while
				testkit.Check(t, len(dead.ids()) == row.letters && len(pub.ids()) == 2*(20-row.letters),
					"%d letters, not %d; %d outputs", len(dead.ids()), row.letters, len(pub.ids()))
				for _, l := range dead.letters(t) {
					testkit.Equal(t, "the letter", l.Failure.Reason, classify.ReasonOutput)
				}
				lines, refusals := logger.Captured(), 5*row.letters // of outputs whose source is set aside
				testkit.Check(t, len(lines[watermill.ErrorLogLevel]) == 1+refusals && len(lines[watermill.InfoLogLevel]) == 1,
					"logged %v", lines)
			})
		})
	}
}

// running runs a router with the handlers that add adds, and returns the function that closes it.
func running(t testing.TB, add func(*message.Router)) (stop func()) {
	return testkit.RunRouter(t, watermill.NopLogger{}, add)
}

var eventually = testkit.Eventually

func newChannel(config gochannel.Config) *gochannel.GoChannel {
	return gochannel.NewGoChannel(config, watermill.NopLogger{})
}

func publish(t testing.TB, pub message.Publisher, topic string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		testkit.NoError(t, pub.Publish(topic, newMessage(id)))
	}
}

// Promise P1: a handler without a publisher works under the decorator; an output that a middleware invents for it is
// undeliverable, and its source set aside.
func TestRouterConsumerHandlers(t *testing.T) {
	source, dead := newChannel(gochannel.Config{}), &publisher{}
	o := newOutputs(t, dead, outputs.Config{Attempts: 2, Backoff: quick})
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
		r.AddHandler("unused", "none", newChannel(gochannel.Config{}), "", nil, (&echo{}).handle) // Watermill allows it
	})
	publish(t, source, "orders", "1", "2")
	eventually(t, "both are handled", func() bool { return handled.Load() == 2 && len(dead.ids()) == 1 })
	stop()
	letters := dead.letters(t)
	testkit.Require(t, handled.Load() == 2 && len(letters) == 1, "%d handled, %d letters", handled.Load(), len(letters))
	l := letters[0]
	testkit.Check(t, l.Failure.Reason == classify.ReasonOutput && strings.Contains(l.Failure.Description, `"invented"`),
		"set aside with %q, %q", l.Failure.Reason, l.Failure.Description)
}

func aborted(err error) bool {
	failure, ok := errs.Find[*classify.Failure](err)
	return ok && failure.Verdict.Class == classify.ClassAborted
}
