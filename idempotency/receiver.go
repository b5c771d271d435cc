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

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/outage"
	"github.com/watermill-spillway/spillway/internal/safecall"
)

// ReceiverConfig configures a Receiver. The zero value is ready for use.
type ReceiverConfig struct {
	// Consumer replaces the handler's name in keys, for a handler that is renamed. Default: the name of the router's handler.
	// With the service of the store it identifies who applies a message: under another name, messages that were applied
	// before are applied again if they come again. To rename a handler, set Consumer to its old name. To rename a service,
	// keep StoreConfig.Service as it was, or stop all processes of the service and update the column consumer of
	// spillway_keys. Two handlers must not have the same Consumer: one would absorb the messages of the other. If two handlers
	// of one Receiver do, the Receiver logs it once.
	Consumer string
	// Key tells messages apart, by default by their ids.
	Key KeyFunc
	// Version, if set, makes Key a business key, which is applied again with every higher version. A message with a lower
	// one than was applied is stale: it is skipped, and OnStale called. See VersionMetadata. What the handler produced for a
	// version is not recorded any longer when a higher one has been applied: where it could not be published until then, it
	// is not made up for. A key that was applied before there were versions is applied again with any.
	Version VersionFunc
	// AnyPayload lets a key stand for messages with different payloads. By default the payload of a duplicate is compared
	// with that of the message that was applied, by SHA-256; one that differs is invalid, with reason key_reused, since to
	// absorb it would lose it. A message that reaches a handler over two sources may differ in nothing but how its payload is
	// written: JSONB of PostgreSQL writes JSON in a way of its own.
	AnyPayload bool
	// MarkPublished forgets recorded outputs when they were seen published, so that a duplicate publishes nothing again. It
	// costs a statement for each message with outputs, and works in a spillway.Channel alone: parts that are attached one by
	// one do not hear of the publishing. Where the process ends between the publishing and the mark, a duplicate publishes them
	// again all the same.
	MarkPublished bool
	// Lease, if set, selects the lease mode, for handlers whose effects are outside of SQL: an HTTP call, a mail. There is no
	// transaction then (Tx returns nil). The key is leased for so long before the handler runs, the lease is renewed while it
	// runs, and the key is recorded as applied when it has succeeded. At least 1 s; by default there is none, and key and
	// effects share a transaction. It is how long a message waits after its process has died, and how long the database may
	// be away before a handler at work is cancelled. The pool needs a connection to spare for renewals: where handlers hold all
	// of them, leases are lost, and the messages given back and handled again, without end. A broker that limits deliveries
	// itself (x-delivery-limit) counts those that are given back too.
	//
	// Promised, while the database's clock does not jump and the process is not suspended: nobody else is given the message
	// until the lease is over, and the handler's context is cancelled with the cause ErrLeaseLost before another can take the
	// key over. It carries a fencing token (Fence), by which the other side can refuse a writer that comes late. A key that was
	// recorded is not applied again.
	//
	// Not promised: that effects happen once. They happen at least once: again where the process dies, or loses its lease,
	// after the effect and before the record; and where the handler fails after it. A process that is suspended for longer
	// than its lease wakes up without it, and does not know for a moment; after a jump of the database's clock the owner learns
	// at its next renewal that the lease is over. A handler that ignores its context goes on. Where that matters, send the
	// token along, or the key as the idempotency key of the other side.
	Lease time.Duration
	// Optimistic lets the handler begin before its key is entered: the key travels with the handler's first statement through
	// Tx that has arguments and returns no rows, in one round trip, or before its first query. What is written through Tx
	// takes effect once, as ever. But the handler of a duplicate begins too, and goes as far as that statement, which returns
	// ErrApplied; what it does until then, and outside of Tx, it does once for each delivery. It is for stores of
	// package pgxstore.
	Optimistic bool
	// PutBackAfter is how long a message is held at the most, and half of it at the least, whose key somebody else holds by a
	// lease, before it is given back to come again. Default: 1 s.
	PutBackAfter time.Duration
	// MaxHold is how long a message is held at most while the store is away, before it is given back to come again. Either way
	// nothing is counted. Keep it below the time after which the broker delivers a message again that was not acked: 30 s of
	// JetStream, 60 s of Redis Streams, 30 min of RabbitMQ. Default: 20 s, or 15 minutes for messages of wmamqp's Subscriber,
	// since quorum queues count what is given back (x-delivery-limit). It ends a second before the deadline of the message's
	// context.
	MaxHold time.Duration
	// Logger is told of duplicates and of what cannot be returned as an error. By default nobody is.
	Logger watermill.LoggerAdapter
	// OnApplied is called after a message's effects were committed. The hooks are called by many goroutines, after the
	// claim has ended; one that panics is logged.
	OnApplied func(ctx context.Context, key Key)
	// OnDuplicate is called when a message was absorbed.
	OnDuplicate func(ctx context.Context, key Key)
	// OnStale is called when a message was skipped, because its key had been applied with a higher version.
	OnStale func(ctx context.Context, key Key, version, applied int64)
	// OnPutBack is called when a message is given back, because another delivery holds its key by a lease.
	OnPutBack func(ctx context.Context, key Key)
	// OnLeaseLost is called when a lease was lost while the handler ran, or before its success was recorded: the effects may
	// happen twice. The message is given back; where another delivery has applied it, it is absorbed when it comes again.
	OnLeaseLost func(ctx context.Context, key Key)
}

func (c *ReceiverConfig) setDefaults() {
	if c.Key == nil {
		c.Key = ByID()
	}
	if c.PutBackAfter == 0 {
		c.PutBackAfter = time.Second
	}
	if c.Logger == nil {
		c.Logger = watermill.NopLogger{}
	}
}

func (c *ReceiverConfig) validate(store Store) error {
	if safecall.IsNil(store) {
		return errors.New("idempotency: NewReceiver: the store is nil: pass one of NewStore")
	}
	if c.Lease != 0 && c.Lease < minLease {
		return fmt.Errorf("idempotency: ReceiverConfig.Lease is %s: it must be 1s or more, or else its renewal comes too late; 0 is for transactions", c.Lease)
	}
	if c.Lease > maxLease {
		return fmt.Errorf("idempotency: ReceiverConfig.Lease is %s: it must be %s or less", c.Lease, maxLease)
	}
	if late, ok := store.(optimisticStore); c.Optimistic && (!ok || !late.pipelines()) {
		return fmt.Errorf("idempotency: ReceiverConfig.Optimistic is set, and the store %T sends no key along with a statement: "+
			"pass one of pgxstore.New, or leave Optimistic out", store)
	}
	if c.Optimistic && c.Lease != 0 {
		return errors.New("idempotency: ReceiverConfig.Optimistic and Lease are set: a lease has no transaction whose first statement could take its key along")
	}
	if c.Version != nil && c.Key == nil {
		return errors.New("idempotency: ReceiverConfig.Version is set, and Key is not: of a message's own id there is one version; " +
			"set Key to what all versions of a thing have in common")
	}
	if c.MaxHold < 0 {
		return fmt.Errorf("idempotency: ReceiverConfig.MaxHold is %s: it must not be negative", c.MaxHold)
	}
	if c.PutBackAfter < 0 {
		return fmt.Errorf("idempotency: ReceiverConfig.PutBackAfter is %s: it must not be negative", c.PutBackAfter)
	}
	return nil
}

// Receiver applies each message once. It is safe for concurrent use by any number of handlers.
type Receiver struct {
	config     ReceiverConfig
	store      Store
	guard      *outage.Guard
	pool       pool
	optimistic optimisticStore // where it is optimistic
	known      identities
	handler    atomic.Pointer[string] // the first that came, where Consumer is set
	shared     atomic.Bool            // a second one came, and was told of
}

// NewReceiver returns a Receiver that keeps its keys in store, or an error that names the wrong field of config.
func NewReceiver(store Store, config ReceiverConfig) (*Receiver, error) {
	if err := config.validate(store); err != nil {
		return nil, err
	}
	config.setDefaults()
	r := &Receiver{config: config, store: store, pool: pool{logger: config.Logger}}
	r.guard = outage.New(outage.Config{Name: "idempotency: the store of keys", MaxHold: config.MaxHold, Away: storeAway, Logger: config.Logger})
	if pooled, ok := store.(interface{ pool() *sql.DB }); ok {
		r.pool.db = pooled.pool()
	}
	if config.Optimistic {
		r.optimistic = store.(optimisticStore)
	}
	return r, nil
}

// Middleware applies each message of a handler once. It belongs inside whatever retries, so that each attempt has a
// transaction of its own, and around the handler alone. On failure nothing stays and the error returns as
// it was; one of a deadlock, a serialization failure or a full disk has the store, the key and what to do added to it.
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
	return watermill.LogFields{"consumer": boundedtext.Text(key.Consumer, 128), "key": boundedtext.Text(key.ID, 128)}
}

// failed adds to err what was being done, with which key, and what to do.
func failed(doing string, key Key, err error) error {
	if todo := remedy(err); todo != "" {
		err = fmt.Errorf("%w (%s)", err, todo)
	}
	return fmt.Errorf("idempotency: %s key %s of consumer %s: %w", doing, quote(key.ID), quote(key.Consumer), err)
}
