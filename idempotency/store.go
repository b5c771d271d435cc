package idempotency

import (
	"context"
	"database/sql"
	"time"

	"github.com/watermill-spillway/spillway/idempotency/internal/claims"
	"github.com/watermill-spillway/spillway/internal/keytable"
)

// Key names one message for one consumer. Two messages with the same key are the same message, delivered twice.
type Key struct {
	// Consumer is who applies the message, as a rule the handler's name.
	Consumer string
	// ID tells the consumer's messages apart. It may hold any bytes.
	ID string
}

// Entry is a key on its way into a store, with what is known of the message that brings it.
type Entry struct {
	Key
	// Fingerprint is the SHA-256 of the payload, or nil where payloads are not compared.
	Fingerprint []byte
	// Version is the business version that the message makes of its key, where it is Versioned. Such a key is applied
	// again with every higher version, and with no other.
	Version   int64
	Versioned bool
}

// Record is what a store kept of a key that was applied before.
type Record struct {
	// Outputs is what was given to Commit, byte for byte; nil where there were none or they were marked published.
	Outputs []byte
	// Fingerprint and Version are those of the entry that was applied.
	Fingerprint []byte
	Version     int64
	Versioned   bool
}

// ErrHeld says that another delivery holds the key by a lease. The message is to come again later.
var ErrHeld = keytable.ErrHeld

// ErrApplied is what the first statement of an optimistic handler returns, and all that follow it, where its message was
// applied before. See ReceiverConfig.Optimistic.
var ErrApplied = claims.ErrApplied

// Store keeps the keys that were applied. Implementations are safe for concurrent use by many processes.
type Store interface {
	// Consumer returns the identity under which the keys of a handler are kept. It is part of each key: handlers of different
	// services must have different ones. It is the same whenever it is asked for.
	Consumer(handler string) string

	// Claim begins a transaction and enters the key as its first statement. While another transaction holds the same key
	// Claim waits for the end of that one: the wait, and that for connections and locks, ends with ctx. A key that is
	// held by a lease is not waited for: the error wraps ErrHeld. The transaction itself must outlive ctx, because a
	// handler that acks its message ends the message's context: it begins on context.WithoutCancel.
	//
	// Keys compare byte for byte, case and trailing spaces included, whatever bytes they hold. A versioned entry claims
	// a key that is applied with a lower version, or with none. After an error nothing is left behind; the error wraps its
	// cause, so that its class can be found.
	Claim(ctx context.Context, entry Entry) (Claim, error)

	// Lease leases the key for d, which is at least a second, by the clock of the store's database. It is committed before
	// Lease returns, and no transaction stays open. Keys, versions and waits are as in Claim, a transaction that holds the key
	// included; a key that another lease holds is not waited for: the error wraps ErrHeld. One whose lease has expired, was
	// given up, or began in the future because the clock was set back, is taken over. What is recorded of the key stays
	// recorded until Lease.Complete. After an error that wraps its cause, what may be left of the lease expires.
	Lease(ctx context.Context, entry Entry, d time.Duration) (Lease, error)

	// MarkPublished forgets the outputs that were recorded with an entry, because they were seen published. A key that is not
	// there, not applied, or applied with another version by now is no error.
	MarkPublished(ctx context.Context, entry Entry) error

	// Purge deletes at most limit keys that were applied before a time, the oldest first, in one short transaction that is in
	// no claim's way (on SQLite claims wait for it, and on MariaDB before 10.6 it may for them), and returns how many it
	// deleted. Keys under a lease stay until it is over. See NewPurge.
	Purge(ctx context.Context, before time.Time, limit int) (int, error)
}

// Claim is a key on its way from absent to applied. It is used by one goroutine, and ended by Commit or Release.
type Claim interface {
	// Tx returns the transaction for the handler's own writes. The claim ends it; the handler must not.
	Tx() *sql.Tx

	// Recorded returns what was recorded when the key was applied before, with this version or a higher one, or nil where
	// this claim is the first. A claim of a key that was applied can only be released.
	Recorded() *Record

	// Commit records outputs, byte for byte, with the key and commits them with the handler's writes. It ends the claim
	// also when it fails; then nothing was committed, except by a handler that ended the transaction itself. In that
	// case the error wraps sql.ErrTxDone.
	Commit(outputs []byte) error

	// Release rolls back, so that nothing stays: neither key nor writes. After the claim has ended it does nothing and
	// returns nil. An error that wraps sql.ErrTxDone says that the handler committed the transaction itself.
	Release() error
}

// optimisticStore is a Store whose claims can begin before their keys are entered.
type optimisticStore interface {
	// pipelines tells whether they can.
	pipelines() bool
	// claimOptimistic is Claim, but for the key: that is entered with the first statement of Tx, which waits for others that hold it
	// until its own context ends, or ctx, unless that ended because the message was acked. Where the key was applied its error
	// wraps ErrApplied.
	claimOptimistic(ctx context.Context, entry Entry, acked <-chan struct{}) (optimisticClaim, error)
}

type optimisticClaim interface {
	Claim
	// Settled says, after the handler, whether the key is the claim's. See postgresclaim.Claim.
	Settled(ctx context.Context, failed bool) error
}

// row is the entry as it stands in the table.
func (e *Entry) row() keytable.Row {
	return keytable.NewRow(e.Consumer, e.ID, e.Fingerprint, e.Version, e.Versioned)
}
