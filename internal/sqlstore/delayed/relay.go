package delayed

import (
	"cmp"
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain/delays"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/observe"
)

// RelayConfig configures a Relay. Tests set what is not for them.
type RelayConfig struct {
	// Batch is how many messages are taken at a time. Default: 200.
	Batch int
	// Poll is how often the relay looks for what another process put, and so the longest that such a message is late.
	// Default: 1 second.
	Poll time.Duration
	// Lease is how long the messages of a relay that died wait for another relay. A relay that lives renews it. Default:
	// 10 seconds.
	Lease time.Duration
	// GiveUp is called with a message that the publisher can never accept: the error is a refusal for size, or wraps
	// classify.ErrRefused. If GiveUp returns nil, it has placed the message elsewhere, and the message leaves the
	// store. Default: none; such a message is tried again every minute.
	GiveUp delays.GiveUp
	// Shared: Classifier decides which refusals of the publisher are for size, in stages that of their queue. Logger
	// receives refusals of the publisher, and failures of the database.
	observe.Shared
}

func (c *RelayConfig) setDefaults() {
	c.Batch = cmp.Or(c.Batch, 200)
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.Lease = cmp.Or(c.Lease, 10*time.Second)
	c.Logger = logging.Wrap(c.Logger, nil)
}

// Relay publishes what is due. It is safe for concurrent use: one that runs several times is several relays.
type Relay struct{ from source }

// source is from where messages go where.
type source struct {
	config    *RelayConfig
	store     *Store
	publisher message.Publisher
}

// NewRelay returns a Relay that publishes the messages of store when they are due. Nothing is published before Run.
// publisher must confirm what it takes: what it loses is lost. The relay does not close it.
func NewRelay(store *Store, publisher message.Publisher, config RelayConfig) *Relay {
	config.setDefaults()
	return &Relay{source{&config, store, publisher}}
}

// Relay is NewRelay for stages.
func (s *Store) Relay(publisher message.Publisher, giveUp delays.GiveUp, shared observe.Shared) delays.Relay {
	return NewRelay(s, publisher, RelayConfig{GiveUp: giveUp, Shared: shared})
}

// Run publishes what is due until ctx ends, and returns nil then: when a call of the publisher that was under way has
// returned, and what was taken and not published has been released for other relays, for which it takes up to 5
// seconds. An error of the database or of the publisher does not end it.
func (r *Relay) Run(ctx context.Context) error {
	w := &worker{from: r.from, topics: topics{}}
	alarm := newAlarm()
	defer r.from.store.alarms.add(alarm)()
	for ctx.Err() == nil {
		alarm.reset()
		alarm.sleep(ctx, w.round(ctx))
	}
	return nil
}
