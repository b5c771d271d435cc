package spillway

import (
	"context"
	"errors"
	"fmt"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/middleware/outputs"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/guard"
	"github.com/watermill-spillway/spillway/internal/chain/lifecycle"
	"github.com/watermill-spillway/spillway/internal/chain/registry"
	"github.com/watermill-spillway/spillway/internal/chain/traced/attempt"
	"github.com/watermill-spillway/spillway/internal/hold/outage"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/order/ordered"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/middleware"
	"github.com/watermill-spillway/spillway/middleware/breaker"
	"github.com/watermill-spillway/spillway/middleware/crashlimit"
	"github.com/watermill-spillway/spillway/middleware/stages"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// listed is for those who follow what is parked.
type listed = parked.Listed

// Channel is a dead letter channel: the parts of Spillway composed in the only right order. It is safe for concurrent
// use by any number of handlers and routers. It needs no closing: what runs beside the handlers begins and ends with
// the router.
type Channel struct {
	listed
	queue   *poison.Queue
	outputs *outputs.Outputs
	retry   *middleware.Retry
	stages  *stages.Stages       // nil without Config.Stages
	ordered *ordered.Part        // nil without Config.Ordered
	breaker *breaker.Breaker     // nil without Config.Breaker
	letters *letters.Store       // nil if Config gives the publisher
	stores  []*outage.Dependency // of what the parts themselves need
	chain   message.HandlerMiddleware
	plugins []message.RouterPlugin
	logger  *logging.Log // nil with a Config.Logger
	// see Config.DrainTimeout
	drainTimeout time.Duration
	keyed        []string // the handlers of Config.Receiver.Handlers
	registry     registry.Registry

	attachedToNil atomic.Bool
}

// New returns a Channel. It returns an error that names the field of config with which messages could be lost, or which
// would have no effect. With a database New creates the tables that are missing, within ctx.
func New(ctx context.Context, config Config) (*Channel, error) {
	if ctx == nil {
		return nil, errors.New("spillway: New: the context is nil: give context.Background() if there is no other")
	}
	ch := &Channel{}
	config.own()
	err := config.observe()
	if config.Logger == nil {
		ch.logger = logging.NewLate(config.Privacy.Text)
		config.Logger = ch.logger
	}
	if err == nil {
		err = config.check()
	}
	if err == nil {
		err = config.share()
	}
	if err == nil {
		ch.letters, err = config.openStores(ctx)
	}
	if err == nil {
		err = ch.compose(ctx, &config)
	}
	if err != nil {
		return nil, config.Privacy.Error(fmt.Errorf("spillway: %w", err)) // a driver's error can have its password
	}
	return ch, nil
}

// compose makes the parts and puts them in order, outermost first.
func (ch *Channel) compose(ctx context.Context, config *Config) (err error) {
	if ch.queue, err = poison.NewQueue(config.Publisher, config.Queue); err != nil {
		return err
	}
	if ch.outputs, err = outputs.New(ch.queue, config.Outputs); err != nil {
		return err
	}
	ch.drainTimeout = config.DrainTimeout
	var receiver *idempotency.Receiver
	if config.Receiver != nil {
		if receiver, err = idempotency.NewReceiver(config.Idempotency, *config.Receiver); err != nil {
			return err
		}
	}
	parts := []chain.Part{ch.outputs, ch.queue}
	if config.Ordered != nil {
		if err := ch.order(ctx, config, receiver); err != nil {
			return err
		}
		parts = append(parts, ch.ordered.Outer)
		if config.Purge != nil && config.Purge.Horizon > 0 {
			config.Purge.Horizon += ch.ordered.Total()
		}
	}
	if config.CrashLimit != nil {
		limit, err := crashlimit.New(*config.CrashLimit)
		if err != nil {
			return err
		}
		parts, ch.plugins = append(parts, limit), append(ch.plugins, limit.Plugin)
	}
	refusing, err := guard.New(guard.Rules(config.Guard))
	if err != nil {
		return err
	}
	parts = append(parts, refusing)
	if config.Stages != nil {
		if ch.stages, err = stages.New(ch.queue, *config.Stages); err != nil {
			return err
		}
		parts, ch.plugins = append(parts, ch.stages), append(ch.plugins, ch.stages.Plugin)
		if config.Purge != nil && config.Purge.Horizon > 0 {
			config.Purge.Horizon += hidden.Of(ch.stages).Total()
		}
	}
	if ch.ordered != nil {
		parts = append(parts, ch.ordered.Parking)
	}
	if config.DB != nil && config.Ordered == nil {
		ch.listed = parked.ListedIn(config.DB, config.Service)
	}
	ch.plugins = append(ch.plugins, lifecycle.New(leftBy(config).report, func() {}).Plugin)
	if ch.retry, err = middleware.NewRetry(config.Retry); err != nil {
		return err
	}
	parts = append(parts, ch.retry)
	if config.Breaker != nil {
		if ch.breaker, err = breaker.New(*config.Breaker); err != nil {
			return err
		}
		parts, ch.plugins = append(parts, ch.breaker), append(ch.plugins, ch.breaker.Plugin)
	}
	if config.Tracer != nil {
		shared := config.Retry.Shared
		shared.Tracer = config.Tracer
		parts = append(parts, attempt.Part(shared))
	}
	if receiver != nil {
		ch.keyed = slices.Sorted(maps.Keys(config.Receiver.Handlers))
		parts = append(parts, receiver)
	}
	if ch.ordered != nil {
		parts = append(parts, ch.ordered.Inner)
	}
	if config.Purge != nil {
		purge, err := idempotency.NewPurge(config.Idempotency, *config.Purge)
		if err != nil {
			return err
		}
		ch.plugins = append(ch.plugins, purge)
	}
	if config.Retention != nil {
		retention, err := letters.NewRetention(ch.letters, *config.Retention)
		if err != nil {
			return err
		}
		ch.plugins = append(ch.plugins, retention)
	}
	for _, part := range parts {
		if owner, ok := part.(outage.Owner); ok {
			ch.stores = append(ch.stores, outage.Of(owner))
		}
	}
	ch.plugins = append(ch.plugins, lifecycle.New(func() error {
		logging.Begin(config.Logger)
		if slices.ContainsFunc(config.Observers, func(o Observer) bool { return lifecycle.Misses(o) }) {
			eventNoticesOff.Write(config.Logger, nil, nil)
		}
		return nil
	}, func() { logging.Flush(config.Logger) }).Plugin)
	ch.chain = chain.EnterParts(append(parts, chain.Recover)...)
	return nil
}

// Stages adds handlers whose failed messages are retried later: use channel.Stages().AddHandler(router, ...) in place
// of router.AddHandler(...). Without Config.Stages it returns nil, and adding a handler returns an error that says so.
func (ch *Channel) Stages() *stages.Stages { return ch.stages }

// Breaker returns the circuit breaker of Config.Breaker: hold a handler's messages by hand, or see its state. Without
// Config.Breaker it returns a nil Breaker, which holds no message.
func (ch *Channel) Breaker() *breaker.Breaker { return ch.breaker }

// Queue returns the channel's poison.Queue. Use the queue to dead-letter a message outside of a handler, or to
// initialise destinations.
func (ch *Channel) Queue() *poison.Queue { return ch.queue }

// Letters returns the dead-letter store that New made in Config.DB: list its letters, and redrive them with
// redrive.Drain. It returns nil if Config.Publisher was set.
func (ch *Channel) Letters() *letters.Store { return ch.letters }
