package delayed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain/delays"
	"github.com/watermill-spillway/spillway/internal/chain/lifecycle"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/observe"
)

// RelayConfig configures a Relay.
type RelayConfig struct {
	// Batch is how many messages are taken at a time, at most 5,000. Default: 200.
	Batch int
	// Poll is how often the relay looks for what another process put, and so the longest that such a message is late.
	// Default: 1 second.
	Poll time.Duration
	// Lease is how long the messages of a relay that died wait for another relay. A relay that lives renews it. It must
	// be at least 100 milliseconds. Default: 10 seconds.
	Lease time.Duration
	// GiveUp is called with a message that the publisher can never accept: the error is a refusal for size, or wraps
	// classify.ErrRefused. If GiveUp returns nil, it has placed the message elsewhere, and the message leaves the
	// store. Default: none; such a message is tried again every minute.
	GiveUp delays.GiveUp
	// OnMoved is called with each message that the publisher has taken, in due order, before its row is deleted. It is
	// called again if the message is published again. A panic is logged. Default: none.
	OnMoved func(context.Context, Moved)
	// Shared: Classifier decides which refusals of the publisher are for size, in stages that of their queue. Logger
	// receives refusals of the publisher, and failures of the database.
	observe.Shared
}

// Moved is a message that was published.
type Moved struct {
	// Topic and ID are those that it was published with.
	Topic, ID string
	// Late is how long after it was due: by the database's clock when it was taken, and the process's since then.
	Late time.Duration
}

const (
	maxBatch = 5000
	// minLease and minPoll keep a duration from being meant in another unit.
	minLease = 100 * time.Millisecond
	minPoll  = time.Millisecond
)

func (c *RelayConfig) setDefaults() {
	if c.Batch == 0 {
		c.Batch = 200
	}
	if c.Poll == 0 {
		c.Poll = time.Second
	}
	if c.Lease == 0 {
		c.Lease = 10 * time.Second
	}
	c.Logger = logging.Wrap(c.Logger, nil)
}

func (c *RelayConfig) validate() error {
	switch {
	case c.Batch < 1 || c.Batch > maxBatch:
		return fmt.Errorf("delay: RelayConfig.Batch is %d: it must be 1 to %d", c.Batch, maxBatch)
	case c.Poll < minPoll:
		return fmt.Errorf("delay: RelayConfig.Poll is %s: each is a statement; it must be %s or more", c.Poll, minPoll)
	case c.Lease < minLease:
		return fmt.Errorf("delay: RelayConfig.Lease is %s: it must outlast a statement, and be %s or more", c.Lease,
			minLease)
	}
	return nil
}

// Relay publishes what is due. It is safe for concurrent use: one that runs several times is several relays.
type Relay struct {
	from source
	life *lifecycle.Lifecycle
}

// source is from where messages go where.
type source struct {
	config    *RelayConfig
	store     *Store
	publisher message.Publisher
}

// NewRelay returns a Relay that publishes the messages of store when they are due. Nothing is published before Run, or
// before the router of Plugin runs.
//
// publisher must confirm what it takes: what it loses is lost. A router closes the publishers of its handlers, so give
// the relay a publisher of its own. The relay does not close it.
func NewRelay(store *Store, publisher message.Publisher, config RelayConfig) (*Relay, error) {
	if store == nil {
		return nil, errNoStore
	}
	if safecall.IsNil(publisher) {
		return nil, errors.New("delay: the publisher of NewRelay is nil: nothing would ever leave the store; give the " +
			"publisher for due messages")
	}
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	r := &Relay{from: source{&config, store, publisher}}
	r.life = lifecycle.Run(func(ctx context.Context) { _ = r.Run(ctx) })
	return r, nil
}

// Relay is NewRelay for stages.
func (s *Store) Relay(publisher message.Publisher, giveUp delays.GiveUp, shared observe.Shared) (delays.Relay, error) {
	return NewRelay(s, publisher, RelayConfig{GiveUp: giveUp, Shared: shared})
}

// Plugin runs the relay for as long as handlers of the router run: from before the first subscribes until the last has
// received its last message. The router's end waits for a call of the publisher that is under way.
func (r *Relay) Plugin(router *message.Router) error {
	switch {
	case r == nil:
		return errNoRelay
	case router == nil:
		return errors.New("delay: the router of Relay.Plugin is nil: give Relay.Plugin to Router.AddPlugin")
	}
	return r.life.Plugin(router)
}

// Run publishes what is due until ctx ends, and returns nil then: when a call of the publisher that was under way has
// returned, and what was taken and not published has been released for other relays, for which it takes up to 5
// seconds. An error of the database or of the publisher does not end it.
func (r *Relay) Run(ctx context.Context) error {
	switch {
	case r == nil:
		return errNoRelay
	case ctx == nil:
		return errNoContext
	}
	w := &worker{from: r.from, topics: topics{}}
	alarm := newAlarm()
	defer r.from.store.alarms.add(alarm)()
	for ctx.Err() == nil {
		alarm.reset()
		alarm.sleep(ctx, w.round(ctx))
	}
	return nil
}
