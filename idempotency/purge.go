package idempotency

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain/lifecycle"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/observe"
)

// PurgeConfig configures NewPurge. Retention is required.
type PurgeConfig struct {
	// Retention is how long a key is kept after it was applied. A message that comes again later is applied again. A
	// purge deletes the keys of every service in the table, by the clock of its own process. The time of a key is by
	// the clock of the process that applied it (of the database in lease mode). So a process whose clock is ahead
	// purges early. Required.
	Retention time.Duration
	// Horizon is the longest time after which a message may come again: how long dead letters wait until they are
	// redriven. If Retention is shorter than Horizon, NewPurge logs an error. A spillway.Channel adds to it what a
	// message can wait in all stages. Set it if you redrive sooner, and keep keys for a shorter time. Default: 14 days
	// in all.
	Horizon time.Duration
	// Every is the time from the end of one purge to the next. The first purge begins at a random moment in the first
	// tenth of it, so that processes that start together do not purge together. Default: 1 hour.
	Every time.Duration
	// OnRun is called after each purge of all batches, with the number of keys that it deleted, and the error that
	// ended it early, or nil. If the router stops, ctx has ended. Default: none.
	OnRun func(ctx context.Context, keys int, err error)
	// Shared: Logger receives failed purges, and a Retention that is too short.
	observe.Shared
}

func (c *PurgeConfig) setDefaults() {
	if c.Horizon == 0 {
		c.Horizon = 14 * 24 * time.Hour
	}
	if c.Every == 0 {
		c.Every = time.Hour
	}
	c.Logger = logging.Wrap(c.Logger, nil)
}

func (c *PurgeConfig) validate(store Store) error {
	if safecall.IsNil(store) {
		return errors.New("idempotency: NewPurge: the store is nil: pass the store of the receiver")
	}
	if c.Retention <= 0 {
		return fmt.Errorf("idempotency: PurgeConfig.Retention is %s: set it to how long keys are kept", c.Retention)
	}
	if c.Horizon < 0 || c.Every < 0 {
		return fmt.Errorf("idempotency: PurgeConfig.Horizon (%s) and Every (%s) must not be negative", c.Horizon,
			c.Every)
	}
	return nil
}

type purge struct {
	store  Store
	config PurgeConfig
	most   int // keys that one transaction deletes
	cancel context.CancelFunc
	ended  chan struct{}
}

// NewPurge returns a plugin that deletes old keys of store, in small batches, as long as a router's handlers run. Or it
// returns an error that names the wrong field of config. A Retention below the Horizon is logged as an error, and so is
// a purge that fails, which is tried again when the next is due.
//
// Any number of processes may purge one store. A batch needs a connection of the store's *sql.DB. On SQLite claims wait
// for a batch. If you have a schedule of your own, call Store.Purge until it deletes less than its limit.
func NewPurge(store Store, config PurgeConfig) (message.RouterPlugin, error) {
	p, err := newPurge(store, config)
	if err != nil {
		return nil, err
	}
	return lifecycle.New(p.start, p.stop).Plugin, nil
}

func newPurge(store Store, config PurgeConfig) (*purge, error) {
	if err := config.validate(store); err != nil {
		return nil, err
	}
	config.setDefaults()
	if config.Retention < config.Horizon {
		eventPurgeTooEarly.Write(config.Logger,
			fmt.Errorf("the retention %s is shorter than the horizon %s", config.Retention, config.Horizon),
			logging.Fields{"of": fmt.Sprintf("%T", store), "retention": config.Retention, "horizon": config.Horizon})
	}
	return &purge{store: store, config: config, most: mostOf(store)}, nil
}

// once deletes all keys that are too old by now. If it fails, what it deleted before stays deleted.
func (p *purge) once(ctx context.Context) (int, error) {
	before := time.Now().Add(-p.config.Retention)
	total, err := p.batches(ctx, before)
	if err != nil {
		err = fmt.Errorf("idempotency: purge keys applied before %s: %w", before.UTC().Format(time.RFC3339), err)
	}
	if p.config.OnRun != nil {
		safecall.Hook(p.config.Logger, "PurgeConfig.OnRun", func() { p.config.OnRun(ctx, total, err) })
	}
	return total, err
}

func (p *purge) batches(ctx context.Context, before time.Time) (total int, err error) {
	for {
		began := time.Now()
		n, err := p.batch(ctx, before)
		if total += n; err != nil || n < p.most {
			return total, err
		}
		if !timing.Wait(ctx, 3*time.Since(began)) { // even on SQLite, claims have three quarters of the time
			return total, ctx.Err()
		}
	}
}

// mostOf is how many keys of a store one transaction deletes: fewer on SQLite, where claims wait for it.
func mostOf(store Store) int {
	if claimsInTurn(store) {
		return 200
	}
	return 1000
}

// batchTimeout ends a batch whose database does not answer.
const batchTimeout = time.Minute

func (p *purge) batch(ctx context.Context, before time.Time) (n int, err error) {
	limited, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	err = safecall.Call("purge", func() (err error) {
		n, err = p.store.Purge(limited, before, p.most)
		return err
	})
	return n, err
}

// stopTimeout is how long a router that stops waits for a batch, which is interrupted then.
const stopTimeout = 10 * time.Second

func (p *purge) start() error {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	p.cancel, p.ended = cancel, ended
	go func() {
		defer close(ended)
		p.run(ctx)
	}()
	return nil
}

func (p *purge) run(ctx context.Context) {
	for due := rand.N(p.config.Every/10 + 1); timing.Wait(ctx, due); due = p.config.Every {
		n, err := p.once(ctx)
		fields := logging.Fields{"of": fmt.Sprintf("%T", p.store), "keys": n}
		switch {
		case err != nil && ctx.Err() == nil:
			eventPurgeFailed.Write(p.config.Logger, err, fields)
		case err == nil && n > 0:
			eventKeysPurged.Write(p.config.Logger, nil, fields)
		}
	}
}

func (p *purge) stop() {
	p.cancel()
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		eventPurgeHangs.Write(p.config.Logger, errors.New("the database does not answer"),
			logging.Fields{"of": fmt.Sprintf("%T", p.store)})
	}
}
