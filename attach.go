package spillway

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/text/boundedtext"
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
// Watermill's Retry, PoisonQueue and Recoverer have nothing left to do beside Attach. Watermill's Deduplicator must not
// stand inside: it remembers a message before the handler succeeds, and so loses the second attempt. Watermill's
// Timeout belongs inside, added after Attach: outside, it ends the message's context before the outputs are published.
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
	ch.roster.Expect(router)
	router.AddMiddleware(ch.Middleware)
	router.AddPublisherDecorators(ch.DecoratePublisher)
	router.AddSubscriberDecorators(ch.queue.InitializeOnSubscribe, ch.boundHolds, ch.offerOrder,
		ch.drainsOf(router).decorate)
	router.AddPlugin(ch.Plugin)
}

// Plugin runs what goes on beside the handlers, for as long as the handlers run. It registers the process for
// CrashLimit, purges old keys, moves due messages of the store of Stages, shares outages, and reports stages that no
// handler uses any more, as stages.Stages.Plugin says. Attach adds the plugin.
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
	ch.roster.Join(router)
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
	if !ch.roster.Complete() {
		return nil
	}
	for _, name := range ch.keyed {
		if !ch.roster.Has(name) {
			return fmt.Errorf("spillway: Config.Receiver.Handlers has %q, and the router has no handler of this name: the "+
				"key of that entry would have no effect; use a name of %s, and add the handler before the router runs",
				boundedtext.Text(name, 100), &ch.roster)
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
	if err := ch.queue.Inside().CheckPublisher(pub); err != nil {
		return nil, fmt.Errorf("spillway: %w", err)
	}
	return ch.outputs.Decorate(pub)
}
