package stages

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/hold/due"
	"github.com/watermill-spillway/spillway/internal/logging"
)

// mixed is the subscriber of a handler with stages: it delivers the messages of the live topic, and those of the stages
// that are due. So a stage costs no handler of the router.
type mixed struct {
	message.Subscriber // that of the live topic; of an extended handler, that of the first stage
	live               bool
	waiters            []*waiter
	closed             context.Context // ends when the router closes
	close              context.CancelFunc
}

func newMixed(sub message.Subscriber, live bool, waiters []*waiter) *mixed {
	m := &mixed{Subscriber: sub, live: live, waiters: waiters}
	m.closed, m.close = context.WithCancel(context.Background())
	return m
}

// endTogether is how much earlier than a handler its subscriptions may end if the handler is to end: it can share a
// subscriber with a handler that the router closes first.
const endTogether = 2 * time.Second

// String is the live subscriber's name in the router's contexts and logs.
func (m *mixed) String() string { return nameOf(m.Subscriber) }

// Subscribe subscribes to the stages, and then to the live topic, whose messages could go there. The channel is closed
// when all have ended. If one ends by itself, the others end too: the handler ends, as one without stages does whose
// subscription ends.
func (m *mixed) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	ctx, cancel := context.WithCancel(ctx)
	out := make(chan *message.Message)
	var senders sync.WaitGroup
	ended := func(topic string) {
		select {
		case <-ctx.Done():
		case <-m.closed.Done():
		case <-time.After(endTogether):
			of := m.waiters[0].at.of
			eventSubscriptionEnded.Write(m.waiters[0].log(), errEnded,
				logging.Fields{logging.Topic: topic, logging.Handler: of.name})
			cancel()
		}
	}
	fail := func(err error) (<-chan *message.Message, error) {
		cancel()
		senders.Wait()
		return nil, err
	}
	for _, w := range m.waiters {
		senders.Add(1)
		if err := w.begin(ctx, out, ended, senders.Done); err != nil {
			senders.Done()
			return fail(err)
		}
	}
	var live <-chan *message.Message
	if m.live {
		var err error
		if live, err = m.Subscriber.Subscribe(ctx, topic); err != nil {
			return fail(err)
		}
	}
	go func() {
		if live != nil {
			for msg := range live {
				out <- msg
			}
			ended(topic)
		}
		senders.Wait()
		cancel()
		close(out)
	}()
	return out, nil
}

var errEnded = errors.New("the subscriber closed its channel of messages, and was not asked to: see what the broker " +
	"did to the topic or its consumer group")

// Close ends all waits, so that the subscribers get their messages back, and closes the subscribers at the same time.
func (m *mixed) Close() error {
	m.close()
	errs := make([]error, len(m.waiters)+1)
	var closing sync.WaitGroup
	for i, w := range m.waiters {
		w.close()
		closing.Go(func() { errs[i] = w.sub.Close() })
	}
	if m.live {
		closing.Go(func() { errs[len(m.waiters)] = safecall.Call("subscriber", m.Subscriber.Close) })
	}
	closing.Wait()
	return errors.Join(errs...)
}

// begin subscribes to the stage topic, and hands due messages to out. It calls ended when the subscription has ended,
// and done when all of its messages are settled.
func (w *waiter) begin(ctx context.Context, out chan<- *message.Message, ended func(topic string), done func()) error {
	if s := w.at.of.stages; s.relay != nil && !s.plugged.Load() {
		return fmt.Errorf("stages: handler %q: there is a Store, and no plugin that moves due messages: Attach the "+
			"channel, or add Stages.Plugin to the router", w.at.of.name)
	}
	if err := w.at.initialize(); err != nil {
		return err
	}
	waits, cancel := both(ctx, w.closed)
	var over gate
	stage := due.Stage{
		Delay: w.at.delay,
		Until: w.dueAt,
		Take:  func(msg *message.Message) { over.pass(msg, func() { w.hold(waits, msg, out) }) },
	}
	in, err := w.sub.Subscriber.Subscribe(due.With(hold.WithRedelivery(ctx, w.sub.redelivery), stage), w.at.topic)
	if err != nil {
		cancel()
		return err
	}
	w.at.subscribed.open()
	run := func() {
		defer done()
		defer w.leave() // before the router takes the handler for stopped
		defer cancel()
		w.deliver(waits, in, out, ended)
		over.close()
	}
	if w.holds { // no message comes, and the end is waited for when it is near
		context.AfterFunc(waits, run)
	} else {
		go run()
	}
	return nil
}

// leave closes the subscriber if no other stage has it.
func (w *waiter) leave() {
	if err := w.at.of.stages.closeUnused(w.sub); err != nil {
		eventStageNotClosed.Write(w.log(), err,
			logging.Fields{logging.Handler: w.at.of.name, logging.StageTopic: w.at.topic})
	}
}

// deliver holds all messages at the same time that the subscriber delivers at the same time.
func (w *waiter) deliver(ctx context.Context, in <-chan *message.Message, out chan<- *message.Message,
	ended func(topic string)) {
	var waiting sync.WaitGroup
	for msg := range in {
		waiting.Go(func() { w.hold(ctx, msg, out) })
	}
	ended(w.at.topic)
	waiting.Wait()
}

// gate is passed by messages that their subscriber hands over by itself, until the channel to the router is closed.
type gate struct {
	mu      sync.Mutex
	closed  bool
	passing sync.WaitGroup
}

func (g *gate) pass(msg *message.Message, f func()) {
	if !g.enter() {
		msg.Nack()
		return
	}
	defer g.passing.Done()
	f()
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.passing.Add(1)
	}
	return !g.closed
}

// close waits for messages that are passing. What they wait for has ended before.
func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.passing.Wait()
}
