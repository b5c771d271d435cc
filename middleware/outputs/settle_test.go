package outputs_test

import (
	"context"
	"github.com/watermill-spillway/spillway/middleware/outputs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/middleware"
)

// refusedWhile routes a message whose output is always refused, and lets something happen to it at the second refusal.
func refusedWhile(t *testing.T, meanwhile func(*message.Message, context.CancelFunc, message.Publisher)) (msg *message.Message, dead *publisher, err error) {
	t.Helper()
	msg, dead = newMessage("1"), &publisher{}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		msg.SetContext(ctx)
		pub := &publisher{}
		o := newOutputs(t, dead, outputs.Config{Backoff: every(time.Second)})
		decorated := decorate(t, o, pub)
		pub.refuse = func(string, *message.Message) error {
			if pub.tries("a") == 2 {
				meanwhile(msg, cancel, decorated)
			}
			return errBoom
		}
		err = route(o, decorated, msg, producing("a"))
	})
	return msg, dead, err
}

// Promise P3: shutdown while outputs are refused sets nothing aside: the source is given back as it arrived, and the
// router sees a cancellation.
func TestOutputsAbort(t *testing.T) {
	for name, meanwhile := range map[string]func(*message.Message, context.CancelFunc, message.Publisher){
		"at once": func(_ *message.Message, cancel context.CancelFunc, _ message.Publisher) { cancel() },
		"in the wait": func(_ *message.Message, cancel context.CancelFunc, _ message.Publisher) {
			time.AfterFunc(time.Millisecond, cancel)
		},
		"publisher closed": func(_ *message.Message, _ context.CancelFunc, pub message.Publisher) {
			_ = pub.Close()
		},
		"publisher closed in the wait": func(_ *message.Message, _ context.CancelFunc, pub message.Publisher) {
			time.AfterFunc(time.Millisecond, func() { _ = pub.Close() })
		},
	} {
		msg, dead, err := refusedWhile(t, meanwhile)
		wantAborted(t, err)
		testkit.Check(t, len(dead.ids()) == 0 && msg.Equals(newMessage("1")) && closed(msg.Nacked()),
			"%s: %d letters; the source is %v %q", name, len(dead.ids()), msg.Metadata, msg.Payload)
	}
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Decision 2, promise P1: a source that its handler acked cannot come again, so it is set aside though its context and
// its publisher are gone; one that its handler nacked comes again, so it is not, and is touched no more.
func TestOutputsOfSettledSources(t *testing.T) {
	_, dead, err := refusedWhile(t, func(msg *message.Message, cancel context.CancelFunc, pub message.Publisher) {
		msg.Ack()
		cancel()
		_ = pub.Close()
	})
	testkit.Check(t, err == nil && len(dead.ids()) == 1, "acked: %d letters, error %v", len(dead.ids()), err)
	_, dead, err = refusedWhile(t, func(msg *message.Message, _ context.CancelFunc, _ message.Publisher) { msg.Nack() })
	testkit.Check(t, err != nil && len(dead.ids()) == 0, "nacked: %d letters, error %v", len(dead.ids()), err)
}

// Promise P2: a source that was passed on is restored when it is nacked, and what a publisher took of it before, and
// may still hold, stays what the handler made.
func TestPassthroughIsNotRestoredInThePublisher(t *testing.T) {
	dead, pub := &publisher{}, &holding{}
	o := newOutputs(t, dead, outputs.Config{})
	decorated := decorate(t, o, pub)
	pub.then = func() { _ = decorated.Close() }
	msg := newMessage("1")
	err := route(o, decorated, msg, func(m *message.Message) ([]*message.Message, error) {
		m.UUID = "passed on"
		m.Metadata.Set("tenant", "other")
		return []*message.Message{m, message.NewMessage("refused", nil)}, nil
	})
	wantAborted(t, err)
	if !msg.Equals(newMessage("1")) || pub.held.UUID != "passed on" || pub.held.Metadata.Get("tenant") != "other" {
		t.Fatalf("the source is %q %v, the publisher holds %q %v", msg.UUID, msg.Metadata, pub.held.UUID, pub.held.Metadata)
	}
}

// holding takes the first message it is given, holds it, and refuses the others.
type holding struct {
	held *message.Message
	then func()
}

func (h *holding) Publish(_ string, messages ...*message.Message) error {
	h.held = messages[0]
	h.then()
	return errBoom
}

func (h *holding) Close() error { return nil }

// Feature R3: outputs too are not waited for past the deadline of the source: it is set aside while there is time.
func TestOutputsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		dead, pub := &publisher{}, &publisher{refuse: refusing("a", 99, errBoom)}
		o := newOutputs(t, dead, outputs.Config{Attempts: 50, Backoff: every(3 * time.Second)})
		msg, start := newMessage("1"), time.Now()
		msg.SetContext(ctx)
		err := route(o, decorate(t, o, pub), msg, producing("a"))
		took := time.Since(start)
		testkit.Require(t, err == nil && took == 9*time.Second && pub.tries("a") == 4,
			"%d tries in %s, error %v", pub.tries("a"), took, err)
		wantSetAside(t, dead.letters(t)[0], "a", errBoom)
	})
}

// Decision 1: the letter counts what the handler was invoked, in one chain with a retry, not what the publisher was.
func TestOutputsCountTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead, pub := &publisher{}, &publisher{refuse: refusing("a", 99, errBoom)}
		o := newOutputs(t, dead, outputs.Config{Attempts: 7})
		fails, _ := failing(2, errBoom)
		retry := newRetry(t, middleware.RetryConfig{})
		out := testkit.Must(chain.EnterParts(o, retry)(func(m *message.Message) ([]*message.Message, error) {
			if _, err := fails(m); err != nil {
				return nil, err
			}
			return producing("a")(m)
		})(newMessage("1")))
		testkit.NoError(t, decorate(t, o, pub).Publish("invoices", out...))
		l := dead.letters(t)[0]
		testkit.Require(t, l.Failure.Attempts == 3 && pub.tries("a") == 7 && l.Failure.Reason == classify.ReasonOutput,
			"the letter counts %d attempts, the publisher %d", l.Failure.Attempts, pub.tries("a"))
	})
}

// Promise P3: what a handler produced that nacked its message is not published, since it is produced again.
func TestOutputsOfNacked(t *testing.T) {
	pub := &publisher{}
	o := newOutputs(t, &publisher{}, outputs.Config{})
	decorated := decorate(t, o, pub)
	for i, nacks := range []bool{true, true, false} {
		msg := newMessage("1")
		err := route(o, decorated, msg, func(msg *message.Message) ([]*message.Message, error) {
			if nacks {
				msg.Nack()
			}
			return producing("a")(msg)
		})
		testkit.Check(t, err == nil && closed(msg.Nacked()) == nacks && len(pub.ids()) == i/2,
			"delivery %d: %v, published %v", i, err, pub.ids())
	}
}
