package outputs_test

import (
	"bytes"
	"fmt"
	"github.com/watermill-spillway/spillway/middleware/outputs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/observe"
)

// stamping is another publisher decorator: one that writes on what passes, or copies it without its context.
func stamping(name string, copies bool) message.PublisherDecorator {
	return func(pub message.Publisher) (message.Publisher, error) { return stamp{pub, name, copies}, nil }
}

type stamp struct {
	message.Publisher
	name   string
	copies bool
}

func (s stamp) Publish(topic string, messages ...*message.Message) error {
	for i, msg := range messages {
		if s.copies {
			messages[i] = msg.Copy()
		}
		messages[i].Metadata.Set("stamp", messages[i].Metadata.Get("stamp")+s.name)
	}
	return s.Publisher.Publish(topic, messages...)
}

// Decision 9: added before other decorators, Outputs protects, whatever the others do with the messages: what changes
// them does so to the message as it was made, once, however often it is tried.
func TestRouterOrderOfDecorators(t *testing.T) {
	for _, row := range []struct{ first, copies, protected bool }{{true, true, true}, {true, false, true}, {false, true, false}, {false, false, true}} {
		first, protected := row.first, row.protected
		source, dead, e, logger := newChannel(gochannel.Config{}), &publisher{}, &echo{}, watermill.NewCaptureLogger()
		pub := &publisher{refuse: refusing("out of 1", 2, errBoom)}
		o := newOutputs(t, dead, outputs.Config{Backoff: quick, Shared: observe.Shared{Logger: logger}})
		stop := running(t, func(r *message.Router) {
			r.AddMiddleware(o.Middleware)
			if first {
				r.AddPublisherDecorators(o.Decorate, stamping("x", row.copies))
			} else {
				r.AddPublisherDecorators(stamping("x", row.copies), o.Decorate)
			}
			r.AddHandler("billing", "orders", source, "invoices", pub, e.handle)
		})
		publish(t, source, "orders", "1", "2", "3")
		eventually(t, "all are published", func() bool { return len(pub.ids()) == 3 })
		stop()
		runs := e.called("1")
		testkit.Check(t, (runs == 1) == protected && len(pub.ids()) == 3 && len(dead.ids()) == 0,
			"first: %t: handled %v, published %v", first, e.calls, pub.ids())
		lines := len(logger.Captured()[watermill.InfoLogLevel])
		testkit.Check(t, lines == map[bool]int{true: 0, false: 1}[protected],
			"first: %t: %d lines about untied messages", first, lines)
		for _, out := range pub.messages() {
			testkit.Check(t, out.Metadata.Get("stamp") == "x",
				"first: %t: %q was stamped %q", first, out.UUID, out.Metadata.Get("stamp"))
		}
	}
}

// Decision 12: the outputs of Spillway's own handlers need no tie, and no log line reports its absence.
func TestRouterOwnHandlers(t *testing.T) {
	source, logger, pub := newChannel(gochannel.Config{}), watermill.NewCaptureLogger(), &publisher{}
	own := testkit.Must(chain.Own(source))
	o := newOutputs(t, &publisher{}, outputs.Config{Shared: observe.Shared{Logger: logger}})
	stop := running(t, func(r *message.Router) {
		r.AddMiddleware(o.Middleware)
		r.AddPublisherDecorators(o.Decorate)
		r.AddHandler("redrive", "orders.dlq", own, "orders", pub, func(m *message.Message) ([]*message.Message, error) {
			return []*message.Message{m.CopyWithContext()}, nil
		})
	})
	publish(t, source, "orders.dlq", "1", "2")
	eventually(t, "both are published", func() bool { return len(pub.ids()) == 2 })
	stop()
	lines := logger.Captured()[watermill.InfoLogLevel]
	testkit.Check(t, len(lines) == 0 && len(pub.ids()) == 2, "published %v, logged %v", pub.ids(), lines)
}

// Decision 9: a gochannel that preserves contexts carries a tie into the handlers behind it.
func TestRouterPreservedContext(t *testing.T) {
	// Each instance is closed by the handlers of one topic, so each topic has its own.
	one, two, three := newChannel(gochannel.Config{PreserveContext: true}), newChannel(gochannel.Config{PreserveContext: true}), newChannel(gochannel.Config{PreserveContext: true})
	dead := &publisher{}
	last := &publisher{refuse: refusing("1", 3, errBoom)}
	o := newOutputs(t, dead, outputs.Config{Attempts: 2, Backoff: quick})
	pass := func(m *message.Message) ([]*message.Message, error) {
		out := m.CopyWithContext() // with the tie of the handler before
		out.Metadata.Set("way", m.Metadata.Get("way")+">"+message.HandlerNameFromCtx(m.Context()))
		return []*message.Message{out}, nil
	}
	running(t, func(r *message.Router) {
		r.AddPublisherDecorators(o.Decorate)
		r.AddHandler("a", "one", one, "two", two, pass).AddMiddleware(o.Middleware)
		r.AddHandler("b", "two", two, "three", three, pass) // not protected
		r.AddHandler("c", "three", three, "four", last, pass).AddMiddleware(o.Middleware)
	})
	publish(t, one, "one", "1")
	eventually(t, "c sets its source aside", func() bool { return len(dead.ids()) == 1 })
	l := dead.letters(t)[0]
	testkit.Check(t, l.Origin.Handler == "c" && l.Original.Metadata.Get("way") == ">a>b",
		"the letter is of %q, its source came %q", l.Origin.Handler, l.Original.Metadata.Get("way"))
	publish(t, one, "one", "1")
	eventually(t, "the next one arrives", func() bool { return len(last.ids()) == 1 })
	way := last.messages()[0].Metadata.Get("way")
	testkit.Check(t, way == ">a>b>c" && len(dead.ids()) == 1, "it came %q; %d letters", way, len(dead.ids()))
}

// Feature I4: what asked for it is told when all outputs were accepted, at once or after refusals, and never when the
// source was set aside or, as it arrived, given back, because its letter was refused too.
func TestOutputsTellOfPublishing(t *testing.T) {
	for name, c := range map[string]struct {
		refusals int
		err      error
		dead     error
		want     int
	}{
		"accepted":              {want: 1},
		"accepted later":        {refusals: 2, err: errBoom, want: 1},
		"set aside":             {refusals: 99, err: classify.Permanent(errBoom)},
		"letter refused":        {refusals: 99, err: classify.Permanent(errBoom), dead: errBoom},
		"one of two is refused": {refusals: 4, err: errBoom, want: 1},
	} {
		notified := 0
		dead := &publisher{refuse: func(string, *message.Message) error { return c.dead }}
		o := newOutputs(t, dead, outputs.Config{Backoff: every(time.Millisecond)})
		pub := &publisher{refuse: refusing("a", c.refusals, c.err)}
		asks := func(next chain.Handler) chain.Handler {
			return func(call *chain.Call) ([]*message.Message, chain.Outcome) {
				call.OnPublished(func() {
					testkit.Check(t, len(pub.ids()) >= 2,
						"%s: told before the outputs %q were accepted", name, pub.ids())
					notified++
				})
				return next(call)
			}
		}
		msg := newMessage("1")
		out := testkit.Must(chain.Enter(chain.StepOf(o), asks)(producing("a", "b"))(msg))
		err := decorate(t, o, pub).Publish("invoices", out...)
		testkit.Check(t, (err != nil) == (c.dead != nil) && (err == nil || msg.Equals(newMessage("1"))), "%s: %v of %v", name, err, msg)
		testkit.Check(t, notified == c.want, "%s: told %d times", name, notified)
	}
}

func large(n int) message.HandlerFunc {
	payload := bytes.Repeat([]byte("x"), 1<<20)
	return func(*message.Message) (out []*message.Message, err error) {
		for i := range n {
			out = append(out, message.NewMessage(fmt.Sprint("out-", i), payload))
		}
		return out, nil
	}
}

// Feature D15, promise P2: outputs that are refused once are published as they were made, also if the publisher wrote
// into their payloads.
func TestLargeOutputsRefused(t *testing.T) {
	for name, scribbles := range map[string]bool{"intact": false, "spoilt": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dead := &publisher{}
				refused := 0
				pub := &publisher{refuse: func(_ string, msg *message.Message) error {
					if refused++; refused > 1 {
						return nil
					}
					if scribbles {
						clear(msg.Payload)
					}
					return classify.Transient(errBoom)
				}}
				o := newOutputs(t, dead, outputs.Config{})
				source := message.NewMessage("1", []byte("source"))
				err := route(o, decorate(t, o, pub), source, large(3))
				testkit.Check(t, err == nil && len(dead.ids()) == 0 && len(pub.ids()) == 3,
					"%v, letters %v, published %v", err, dead.ids(), pub.ids())
				for _, msg := range pub.messages() {
					testkit.Check(t, bytes.Count(msg.Payload, []byte("x")) == 1<<20,
						"%s is not as it was made", msg.UUID)
				}
			})
		})
	}
}
