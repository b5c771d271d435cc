package idempotency

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold/outage"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/observe"
)

// ReceiverConfig configures a Receiver. The zero value is ready for use.
type ReceiverConfig struct {
	// Consumer replaces the handler's name in keys, for a handler that is renamed. Default: the name of the router's
	// handler. Consumer and the service of the store identify what applies a message. Under another name, messages that
	// were applied before are applied again if they come again. Consumer counts for every handler of the Receiver. Two
	// handlers must not have the same Consumer: one would absorb the messages of the other. If two handlers of one
	// Receiver do, the Receiver logs it once. To rename one handler, give it a Receiver of its own, with Consumer set
	// to its old name. To rename a service, keep the service of its store as it was, or stop all processes of the
	// service and update the column consumer of spillway_keys.
	Consumer string
	// Key returns what distinguishes messages. It must return the same key for every delivery of a message. It must not
	// change the message, and is called by many goroutines. An empty key makes the message invalid: messages that
	// shared it would be absorbed, except for the first. A panic becomes a permanent error. See ByMetadata and
	// ByPayloadHash. Default: the message's id. A message without an id is then invalid.
	Key func(msg *message.Message) (string, error)
	// Version makes Key a business key, which is applied again with every higher version. Versions compare as numbers,
	// and may have gaps. The conditions of Key hold. It requires Key. A message with a lower version than the applied
	// one is stale: it is skipped, and Hooks.OnStale is called. When a higher version is applied, the outputs of the
	// lower one are forgotten, published or not. A key that was applied without a version is applied again with any
	// version. See VersionMetadata. Default: none.
	Version func(msg *message.Message) (int64, error)
	// Handlers has the handlers whose messages have keys of their own kind, by the names that the handlers have in the
	// router. Key and Version do not count for them. A spillway.Channel refuses a name that no handler of its routers
	// has. Default: none.
	Handlers map[string]HandlerKey
	// AnyPayload lets a key stand for messages with different payloads. By default the SHA-256 of a duplicate's payload
	// is compared with that of the applied message. If they differ, the duplicate is invalid, with reason key_reused:
	// to absorb it would lose it. Set AnyPayload if a message reaches a handler over two sources that write its payload
	// in different ways, as JSONB of PostgreSQL does with JSON.
	AnyPayload bool
	// MarkPublished forgets recorded outputs after they were published, so that a duplicate does not publish them
	// again. It costs a statement for each message with outputs. It works in a spillway.Channel only: a Receiver that
	// is attached by itself does not see the publishing. If the process ends between publishing and mark, a duplicate
	// publishes again. The outputs of a redriven message are always forgotten then, because that is how a campaign
	// learns that they were published. Default: false.
	MarkPublished bool
	// Lease selects the lease mode, for handlers whose effects are outside of SQL, such as an HTTP call or a mail. It
	// is how long a lease of a key lasts: at least 1 s. The lease is renewed while the handler runs. See the package's
	// documentation for what leases promise. Default: no leases; key and effects share a transaction.
	//
	// After a crash, its message waits for the rest of the lease. If the database is unavailable for that long, running
	// handlers are cancelled. Renewals need a connection to spare in the pool. If handlers hold all connections, leases
	// are lost, and messages are requeued and handled again, without end. A broker's own limit of deliveries
	// (x-delivery-limit) counts messages that are requeued.
	Lease time.Duration
	// Hooks are called after events. Default: none.
	Hooks Hooks
	// Shared: Logger receives duplicates, at the level debug, and failures that cannot be returned as errors.
	observe.Shared

	requeueAfter time.Duration // the constant, and something else in tests
}

// Hooks are called by many goroutines, after a claim has ended, and must be quick. A panic of a hook is logged and
// changes nothing.
type Hooks struct {
	// OnApplied is called after a message's effects were committed.
	OnApplied func(ctx context.Context, key Key)
	// OnDuplicate is called after a message was absorbed.
	OnDuplicate func(ctx context.Context, key Key)
	// OnStale is called after a message was skipped because its key had been applied with a higher version.
	OnStale func(ctx context.Context, key Key, version, applied int64)
	// OnRequeue is called when a message is requeued because another delivery has leased its key.
	OnRequeue func(ctx context.Context, key Key)
	// OnLeaseLost is called after a lease was lost while the handler ran, or before its success was recorded. The
	// effects may happen twice. The message is requeued. If another delivery has applied it, it is absorbed when it
	// comes again.
	OnLeaseLost func(ctx context.Context, key Key)
}

// requeueAfter is the longest time for which a message is held whose key another delivery has leased. Most handlers are
// done by then, and a broker that redelivers at once is asked at most twice a second.
const requeueAfter = time.Second

func (c *ReceiverConfig) setDefaults() {
	if c.requeueAfter == 0 {
		c.requeueAfter = requeueAfter
	}
	c.Logger = logging.Wrap(c.Logger, nil)
}

func (c *ReceiverConfig) validate(store Store) error {
	if safecall.IsNil(store) {
		return errors.New("idempotency: NewReceiver: the store is nil: pass one of NewStore")
	}
	if c.Lease != 0 && c.Lease < minLease {
		return fmt.Errorf("idempotency: ReceiverConfig.Lease is %s: it must be at least 1s, so that renewals come in time; "+
			"0 selects transactions", c.Lease)
	}
	if c.Lease > maxLease {
		return fmt.Errorf("idempotency: ReceiverConfig.Lease is %s: it must be at most %s", c.Lease, maxLease)
	}
	if err := validateKeys(c); err != nil {
		return err
	}
	return nil
}

// What other packages of Spillway need of this part, in one value for each of them.
type (
	link     = chain.Link
	owned    = outage.Owned
	received = keytable.Received
)

// Receiver applies each message once. It is safe for concurrent use by any number of handlers.
type Receiver struct {
	link
	owned
	received
	config  ReceiverConfig
	store   Store
	keys    keys
	keeper  *outage.Dependency
	pool    pool
	known   identities
	handler atomic.Pointer[string] // the first that came, where Consumer is set
	shared  atomic.Bool            // a second one came, and was told of
}

// NewReceiver returns a Receiver that keeps its keys in store, or an error that names the wrong field of config.
func NewReceiver(store Store, config ReceiverConfig) (*Receiver, error) {
	if err := config.validate(store); err != nil {
		return nil, err
	}
	config.setDefaults()
	r := &Receiver{config: config, store: store, keys: newKeys(&config), pool: pool{logger: config.Logger}}
	r.link = chain.LinkOf(r.step)
	r.keeper = outage.New(outage.Config{Name: "idempotency: the store of keys", Unavailable: storeUnavailable,
		Logger: config.Logger})
	r.owned, r.received = outage.OwnedBy(r.keeper), keytable.ReceivedBy(sequenced{r})
	if pooled, ok := store.(interface{ pool() *sql.DB }); ok {
		r.pool.db = pooled.pool()
	}
	return r, nil
}

// Middleware applies each message of a handler once. Add it inside of retries, so that each attempt has a transaction
// of its own, and directly around the handler. If the handler fails, nothing stays, and its error is returned
// unchanged. The error of a deadlock, a serialization failure, a full disk or a locked file also names the store, the
// key and the remedy.
func (r *Receiver) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return chain.Enter(r.step)(h)
}

// tell calls a hook and contains its panic: the message has been applied by now, and must not fail.
func (r *Receiver) tell(name string, hook func(context.Context, Key), ctx context.Context, key Key) {
	if hook != nil {
		safecall.Hook(r.config.Logger.With(fields(key)), name, func() { hook(ctx, key) })
	}
}

func fields(key Key) watermill.LogFields {
	return logging.Fields{logging.Consumer: key.Consumer, logging.Key: key.ID}
}

// failed adds to err what was being done, with which key, and what to do.
func failed(doing string, key Key, err error) error {
	if todo := remedy(err); todo != "" {
		err = fmt.Errorf("%w (%s)", err, todo)
	}
	return fmt.Errorf("idempotency: %s key %s of consumer %s: %w", doing, quote(key.ID), quote(key.Consumer), err)
}
