package spillway

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/delays"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/hold/graceful"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/internal/sqlstore/delayed/waiting"
	"github.com/watermill-spillway/spillway/internal/upstream/decorated"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker/circuit"
	"github.com/watermill-spillway/spillway/poison"
)

// Attach protects all handlers of router. It adds:
//
//   - the middleware,
//   - the decorator that checks the publishing of outputs,
//   - the plugin,
//   - the drain of Config.DrainTimeout, for subscribers that have none,
//   - a check at start-up that the dead-letter topics exist, if Queue.Naming can name them without the handler.
//
// Call Attach before the router runs, and before other middlewares and decorators are added. Handlers may be added at
// any time.
//
// Watermill's Retry, PoisonQueue and Recoverer have nothing left to do beside Attach. A PoisonQueue that was added
// before dead-letters what a shutdown requeues. Watermill's Deduplicator must not stand inside: it remembers a message
// before the handler succeeds, and so loses the second attempt. Watermill's Timeout belongs inside, added after Attach:
// outside, it ends the message's context before the outputs are published.
//
// Errors surface in Router.Run. A second Channel that is attached to router is an error. A nil Channel is an error of
// router, and a nil router is an error of every other router that the Channel is attached to.
func (ch *Channel) Attach(router *message.Router) {
	switch {
	case ch == nil && router == nil:
		return
	case ch == nil:
		router.AddPlugin(ch.Plugin) // whose error says so
		return
	case router == nil:
		ch.attachedToNil.Store(true)
		return
	}
	ch.logTo(router)
	ch.registry.Expect(router)
	router.AddMiddleware(ch.Middleware)
	router.AddPublisherDecorators(ch.DecoratePublisher)
	router.AddSubscriberDecorators(ch.queue.InitializeOnSubscribe, ch.boundHolds, ch.offerOrder,
		ch.drainsOf(router).decorate)
	router.AddPlugin(ch.Plugin)
}

// Plugin runs what goes on beside the handlers, for as long as the handlers run. It registers the process for
// CrashLimit, purges old keys, deletes letters by Retention, moves due messages of the store of Stages, shares outages,
// and reports stages that no handler uses any more, as stages.Stages.Plugin says. Attach adds the plugin.
func (ch *Channel) Plugin(router *message.Router) error {
	switch {
	case ch == nil:
		return errors.New("spillway: the Channel is nil, so nothing would be protected: check the error of New")
	case router == nil:
		return errors.New("spillway: Plugin: the router is nil: check the error of message.NewRouter")
	case ch.attachedToNil.Load():
		return errors.New("spillway: Attach was called with a nil router, whose handlers are not protected: check the " +
			"error of message.NewRouter")
	}
	if err := ch.drainsOf(router).check(); err != nil {
		return err
	}
	ch.logTo(router)
	ch.registry.Join(router)
	if err := ch.checkHandlers(); err != nil {
		return err
	}
	for _, plugin := range ch.plugins {
		if err := plugin(router); err != nil {
			return err
		}
	}
	return nil
}

// checkHandlers returns an error if Config.Receiver names a handler that no router has, once all attached routers run.
func (ch *Channel) checkHandlers() error {
	if !ch.registry.Complete() {
		return nil
	}
	for _, name := range ch.keyed {
		if !ch.registry.Has(name) {
			return fmt.Errorf("spillway: Config.Receiver.Handlers has %q, and the router has no handler of this name: the "+
				"key of that entry would have no effect; use a name of %s, and add the handler before the router runs",
				boundedtext.Text(name, 100), &ch.registry)
		}
	}
	return nil
}

// logTo uses the logger of router if Config.Logger is nil.
func (ch *Channel) logTo(router *message.Router) {
	if ch.logger != nil {
		ch.logger.Bind(router.Logger())
	}
}

// Middleware protects one handler: handler.AddMiddleware(channel.Middleware). Use it in place of Attach to protect some
// handlers of a router. The handler's outputs are checked only if the router also has DecoratePublisher.
func (ch *Channel) Middleware(h message.HandlerFunc) message.HandlerFunc { return ch.chain(h) }

// DecoratePublisher is the router's publisher decorator that checks the publishing of outputs of handlers with
// Middleware. Add it before other decorators. Messages of other handlers pass through. It returns an error if a
// handler's publisher is Config.Publisher too.
func (ch *Channel) DecoratePublisher(pub message.Publisher) (message.Publisher, error) {
	if err := hidden.Of(ch.queue).CheckPublisher(pub); err != nil {
		return nil, fmt.Errorf("spillway: %w", err)
	}
	return ch.outputs.Decorate(pub)
}

// drains lets the handlers of a router finish when it closes.
type drains struct {
	configured time.Duration
	router     time.Duration // its CloseTimeout; 0 if it is not known

	mu   sync.Mutex
	open map[*graceful.Drain]struct{} // of subscribers that do not drain by themselves
}

func (ch *Channel) drainsOf(router *message.Router) *drains {
	return &drains{configured: ch.drainTimeout, router: decorated.CloseTimeout(router),
		open: make(map[*graceful.Drain]struct{})}
}

// check refuses a time in which the router does not wait.
func (d *drains) check() error {
	if d.router > 0 && d.configured >= d.router {
		return fmt.Errorf("spillway: Config.DrainTimeout is %s, and the router gives up closing after its CloseTimeout of %s, "+
			"while handlers run: lower DrainTimeout, or raise CloseTimeout", d.configured, d.router)
	}
	return nil
}

// timeout leaves half of a short CloseTimeout for what comes after the handlers.
func (d *drains) timeout() time.Duration {
	switch {
	case d.configured != 0:
		return d.configured
	case d.router > 0:
		return min(graceful.Timeout, d.router/2)
	}
	return graceful.Timeout
}

// decorate is the router's subscriber decorator that does so.
func (d *drains) decorate(sub message.Subscriber) (message.Subscriber, error) {
	return &draining{sub, d}, nil
}

func (d *drains) begin(drain *graceful.Drain) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open[drain] = struct{}{}
}

func (d *drains) end(drain *graceful.Drain) {
	drain.End()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, drain)
}

// stop begins all drains, and returns when they have ended: the router closes the subscribers of its handlers at the
// same time, and handlers can share one.
func (d *drains) stop() {
	d.mu.Lock()
	var all []*graceful.Drain
	for drain := range d.open {
		drain.Stop()
		all = append(all, drain)
	}
	d.mu.Unlock()
	for _, drain := range all {
		<-drain.Work.Done()
	}
}

// draining is a subscriber in a router with a channel.
type draining struct {
	message.Subscriber
	of *drains
}

// Subscribe lets a subscriber of this module drain by itself. It goes between any other and the router: while handlers
// finish it keeps the subscription alive, and takes nothing from it.
func (s *draining) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	var byItself atomic.Bool
	drain := graceful.Begin(graceful.With(ctx, s.of.timeout()))
	subscribed, end := context.WithCancel(graceful.Watch(graceful.With(context.WithoutCancel(ctx), s.of.timeout()),
		&byItself))
	in, err := s.Subscriber.Subscribe(subscribed, topic)
	if err != nil {
		drain.End()
		end()
		return nil, err
	}
	if byItself.Load() {
		context.AfterFunc(drain.Taking, drain.End)
	}
	context.AfterFunc(drain.Work, end)
	if byItself.Load() || drain.Timeout == 0 {
		return in, nil
	}
	s.of.begin(drain)
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		open, more := pass(drain, in, out)
		if !more { // the subscription ended by itself, and its handlers go on
			context.AfterFunc(drain.Taking, func() { s.of.end(drain) })
			return
		}
		settle(drain, open)
		s.of.end(drain)
		for msg := range in { // what the subscriber offers until it has ended
			msg.Nack()
		}
	}()
	return out, nil
}

// pass passes messages on until the drain begins, or the subscription ends by itself. It returns those that are not
// settled, and whether the subscription goes on.
func pass(drain *graceful.Drain, in <-chan *message.Message,
	out chan<- *message.Message) (open []*message.Message, more bool) {
	for most := minOpen; ; {
		select {
		case <-drain.Taking.Done():
			return open, true
		case msg, ok := <-in:
			if !ok {
				return nil, false
			}
			if len(open) >= most {
				open = slices.DeleteFunc(open, settled)
				most = max(2*len(open), minOpen)
			}
			msg.SetContext(graceful.Until(msg.Context(), drain.Taking))
			select {
			case out <- msg:
				open = append(open, msg)
			case <-drain.Taking.Done():
				context.AfterFunc(drain.Work, func() { msg.Nack() })
				return open, true
			}
		}
	}
}

// minOpen is how many messages are kept before those that are settled are left out.
const minOpen = 16

// settle waits until the messages are, or the drain is over.
func settle(drain *graceful.Drain, open []*message.Message) {
	for _, msg := range open {
		select {
		case <-msg.Acked():
		case <-msg.Nacked():
		case <-drain.Work.Done():
			return
		}
	}
}

func settled(msg *message.Message) bool {
	select {
	case <-msg.Acked():
		return true
	case <-msg.Nacked():
		return true
	default:
		return false
	}
}

// Close closes the subscriber when the handlers of the router have finished.
func (s *draining) Close() error {
	s.of.stop()
	return s.Subscriber.Close()
}

// Health is what a Channel knows about what its handlers need. It is made for a health endpoint, as JSON.
type Health struct {
	// OK reports whether no handler's messages are held, and no store is unavailable.
	OK bool `json:"ok"`
	// Handlers has the handlers whose messages are held, with the state of their breaker.
	Handlers []circuit.Status `json:"handlers"`
	// Stores has the channel's own stores and publishers that are unavailable: the store of keys, the publisher of dead
	// letters, that of the stages or their store. They do not depend on Config.Breaker.
	Stores []StoreHealth `json:"stores,omitempty"`
	// Budgets has the retry budgets that are spent. Messages wait for them, or go to their next stage, so OK does not
	// depend on them.
	Budgets []middleware.BudgetSpent `json:"budgets,omitempty"`
}

// StoreHealth is a store or publisher of the channel that is unavailable.
type StoreHealth struct {
	// Name says what is unavailable.
	Name  string    `json:"name"`
	Since time.Time `json:"since"`
	// Waiting is the number of messages that are held for it.
	Waiting int `json:"waiting"`
}

// Health returns the state of all handlers. A service whose downstream is unavailable is not broken: do not let a
// supervisor restart it for that. Without Config.Breaker, Health knows the channel's own stores alone.
func (ch *Channel) Health() Health {
	h := Health{OK: true, Handlers: ch.breaker.Health()}
	for _, status := range h.Handlers {
		h.OK = h.OK && status.State == circuit.Closed
	}
	for _, store := range ch.stores {
		if report, unavailable := store.Report(); unavailable {
			h.OK = false
			h.Stores = append(h.Stores, StoreHealth{Name: report.Name, Since: report.Since, Waiting: report.Waiting})
		}
	}
	h.Budgets = ch.retry.Budgets()
	return h
}

// Attempt says which attempt at its message a handler makes. See AttemptOf.
type Attempt struct {
	// Number counts the attempts, this one included, over retries, stages and redrives. Of those before a redrive it
	// counts the 10 latest.
	Number int
	// Last reports whether a transient error makes the message a dead letter now. It is not known beforehand that an
	// error asks for a longer wait than there is, or that RetryConfig.MaxElapsed will have passed.
	Last bool
	// FirstFailed is when the message first failed, as far as its history goes back. It is zero if it never did.
	FirstFailed time.Time
}

// AttemptOf returns the attempt that a handler makes, from its message's context: at the last one it may fall back, or
// alert. Outside of a handler of a Channel it is a first attempt. The first attempt at a new message costs nothing.
func AttemptOf(ctx context.Context) Attempt {
	is := chain.AttemptOf(ctx)
	a := Attempt{Number: is.Failed + 1, Last: is.Last, FirstFailed: is.FirstFailed}
	if is.Metadata == nil {
		return a
	}
	msg := message.NewMessage("", nil)
	msg.Metadata = is.Metadata
	earlier := poison.Read(msg).Failure
	a.Number += max(earlier.Attempts, len(earlier.History))
	first := []time.Time{earlier.FirstFailedAt}
	if len(earlier.History) > 0 {
		first = append(first, earlier.History[0].At)
	}
	for _, at := range first {
		if !at.IsZero() && (a.FirstFailed.IsZero() || at.Before(a.FirstFailed)) {
			a.FirstFailed = at
		}
	}
	return a
}

// boundHolds is the router's subscriber decorator that makes parts hold messages for no longer than fits the redelivery
// time of their subscriber.
func (ch *Channel) boundHolds(sub message.Subscriber) (message.Subscriber, error) {
	r := hold.RedeliveryOf(decorated.Subscriptions(sub))
	if r.Repeats() { // watermill-redisstream gives a message that was nacked another context
		var err error
		if sub, err = message.MessageTransformSubscriberDecorator(r.Note)(sub); err != nil {
			return nil, err
		}
	}
	return &bounded{sub, r, ch}, nil
}

type bounded struct {
	message.Subscriber
	redelivery *hold.Redelivery
	channel    *Channel
}

// attached is the key of the Channel that decorates a subscription further out.
type attached struct{}

var errTwoChannels = errors.New("spillway: two channels are attached to one router, and each would handle every " +
	"message: attach one, with Config.Receiver.Handlers for handlers with a key of their own; or leave Attach out, and " +
	"give each handler the Middleware of one channel and the router the DecoratePublisher and Plugin of both")

func (b *bounded) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if other, found := ctx.Value(attached{}).(*Channel); found && other != b.channel {
		return nil, errTwoChannels
	}
	ctx = context.WithValue(ctx, attached{}, b.channel)
	return b.Subscriber.Subscribe(hold.WithRedelivery(ctx, b.redelivery), topic)
}

// leftTimeout bounds how long the search for messages that are left delays the start.
const leftTimeout = 10 * time.Second

// left looks in DB for messages that wait there since the channel had another Config.
type left struct {
	db             *sql.DB
	service        string
	logger         watermill.LoggerAdapter
	stages, parked bool // whether no part of the channel moves those of stages, and those in the order of their key
}

func leftBy(c *Config) left {
	l := left{db: c.DB, service: c.Service, logger: c.Logger, stages: c.DB != nil, parked: c.DB != nil && c.Ordered == nil}
	if c.DB != nil && c.Stages != nil && c.Stages.Store != nil {
		s := delays.In(c.Stages.Store)
		l.stages = s.DB() != c.DB || s.Service() != c.Service
	}
	return l
}

// report logs what is left. That does not keep the router from starting.
func (l left) report() error {
	ctx, cancel := context.WithTimeout(context.Background(), leftTimeout)
	defer cancel()
	if l.stages {
		rows, err := waiting.Left(ctx, l.db, l.service)
		if err != nil {
			logging.StageSearchFailed.Write(l.logger, err, logging.Fields{"in": "Config.DB"})
		}
		for _, w := range rows {
			eventStageRowsLeft.Write(l.logger, errLeft,
				logging.Fields{logging.StageTopic: w.Topic, logging.Messages: w.Messages})
		}
	}
	if l.parked {
		if n, err := parked.Left(ctx, l.db, l.service); err == nil && n > 0 {
			eventParkedLeft.Write(l.logger, errParkedLeft, logging.Fields{logging.Messages: n})
		}
	}
	return nil
}

var (
	errLeft       = errors.New("messages in a delay store without a relay")
	errParkedLeft = errors.New("parked messages without Config.Ordered")
)
