package conformance

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
)

const shortStage = 150 * time.Millisecond

// Feature R7: of two handlers on one topic, the one that failed gets the message again, and the other does not.
func (b *bench) stagesPerHandler() {
	var billing, audit journal
	ch := b.channel(b.staged(shortStage), withoutReceiver)
	b.startStaged(ch, b.noting(&billing, func(stage int, _ *message.Message) error {
		if stage == 0 {
			return errNotYet
		}
		return nil
	}), func(router *message.Router) {
		_, err := ch.Stages().AddConsumerHandler(router, "audit", b.topic, b.target.Subscriber(b.T, b.group+"-audit"),
			func(msg *message.Message) error {
				audit.add(keep(msg), time.Now())
				return nil
			})
		if err != nil {
			b.Fatal(err)
		}
	})
	ids := numbered("id", 12)
	b.ids(ids...)
	b.until("all are handled by whom they are for", func() bool {
		effects := b.effects()
		return !slices.ContainsFunc(ids, func(id string) bool {
			audited := len(audit.of(id)) > 0
			billed := effects[id] > 0 && len(billing.of(id)) > 1
			return !billed && (!b.target.Competing || !audited) || !audited && !b.target.Competing
		})
	})
	for _, id := range ids {
		if n := len(audit.of(id)); n > 1 || b.target.Competing && n > 0 && len(billing.of(id)) > 0 {
			b.Errorf("%q was for the other handler, which got it %d times", id, n)
		}
		if visits := billing.of(id); len(visits) != 2 && !b.target.Competing {
			b.Errorf("%q came %d times to the handler that failed once", id, len(visits))
		}
	}
	if n := b.placed.Load(); n != 0 {
		b.Errorf("%d letters", n)
	}
	b.wantNeverEarly(&billing, shortStage)
}

// withoutReceiver has a handler see everything that comes to it.
func withoutReceiver(c *spillway.Config) { c.Idempotency, c.Receiver = nil, nil }

// byHandler has the receiver know a consumer by its handler's name, as it does by default.
func byHandler(c *spillway.Config) { c.Receiver.Consumer = "" }

// Feature R9: all stages run the same function, with what was added to the returned handle, and its outputs go the same
// way, once for each success. A handler that the router has already is extended.
func (b *bench) stagesShareHandler() {
	var j journal
	var around, published atomic.Int32
	router := b.router()
	ch := b.channel(b.staged(shortStage, 2*shortStage))
	ch.Attach(router)
	handle := b.noting(&j, func(stage int, msg *message.Message) error {
		if name := message.HandlerNameFromCtx(msg.Context()); name != handlerName {
			b.Errorf("in stage %d the handler is %q", stage, name)
		}
		if strings.HasPrefix(msg.UUID, "flaky") && stage < 2 {
			return errNotYet
		}
		return nil
	})
	outputs := noting{b.target.Publisher(b.T), &published}
	sub := b.target.Subscriber(b.T, b.group)
	h, err := ch.Stages().AddHandler(router, handlerName, b.topic, sub, b.outs, outputs,
		func(msg *message.Message) ([]*message.Message, error) {
			_, err := handle(msg) // the outputs of a failure go nowhere
			return []*message.Message{message.NewMessage("", []byte(outputOf+msg.UUID))}, err
		})
	if err != nil {
		b.Fatal(err)
	}
	h.AddMiddleware(func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			around.Add(1)
			return next(msg)
		}
	})
	b.run(router)
	ids := append(numbered("flaky", 3), numbered("good", 3)...)
	b.ids(ids...)
	b.untilApplied(ids...)
	b.wantOnce(ids...)
	if n := len(j.of("")); int(around.Load()) != n {
		b.Errorf("the handler's own middleware ran %d times, and the handler %d times", around.Load(), n)
	}
	b.wantOutputs(ids)
	// what is published for a duplicate aside
	again := func() int { return int(published.Load()-b.duplicate.Load()) - len(ids) }
	b.until("all outputs are published", func() bool { return again() >= 0 })
	if n := again(); n > 0 && b.target.Database == nil { // where what is rolled back does not count
		b.Errorf("%d outputs more than successes", n)
	}
	b.variant("extended", (*bench).extended)
}

// extended is a handler that other code added to the router, as cqrs' processors do.
func (b *bench) extended() {
	var j journal
	router := b.router()
	ch := b.channel(b.staged(shortStage))
	ch.Attach(router)
	noting := b.noting(&j, func(stage int, msg *message.Message) error {
		if stage == 0 {
			return errNotYet
		}
		if idempotency.Tx(msg.Context()) == nil {
			b.Error("no transaction in the message's context")
		}
		return nil
	})
	router.AddConsumerHandler(handlerName, b.topic, b.target.Subscriber(b.T, b.group),
		func(msg *message.Message) error {
			_, err := noting(msg)
			return err
		})
	if _, err := ch.Stages().Extend(router, handlerName, b.topic); err != nil {
		b.Fatal(err)
	}
	b.run(router)
	b.ids("order")
	b.untilApplied("order")
	b.wantOnce("order")
	b.wantNeverEarly(&j, shortStage)
	if n := len(j.of("order")); n != 2 {
		b.Errorf("handled %d times", n)
	}
}
