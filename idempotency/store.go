package idempotency

import (
	"context"
	"database/sql"
)

// Key names one message for one consumer. Two messages with the same key are the same message, delivered twice.
type Key struct {
	// Consumer is who applies the message, as a rule the handler's name.
	Consumer string
	// ID tells the consumer's messages apart. It may hold any bytes.
	ID string
}

// Store keeps the keys that were applied. Implementations are safe for concurrent use by many processes.
type Store interface {
	// Initialize creates what the store needs, or verifies that it is there and is what is meant. It may be called
	// again, and by many processes at once. A database the store cannot keep its promises on is an error here.
	Initialize(ctx context.Context) error

	// Claim begins a transaction and enters the key as its first statement. While another transaction holds the same key
	// Claim waits for the end of that one: the wait, and that for connections and locks, ends with ctx. The transaction
	// itself must outlive ctx, because a handler that acks its message ends the message's context: it begins on
	// context.WithoutCancel.
	//
	// Keys compare byte for byte, case and trailing spaces included, whatever bytes they hold. After an error nothing is
	// left behind; the error wraps its cause, so that its class can be found.
	Claim(ctx context.Context, key Key) (Claim, error)
}

// Claim is a key on its way from absent to applied. It is used by one goroutine, and ended by Commit or Release.
type Claim interface {
	// Tx returns the transaction for the handler's own writes. The claim ends it; the handler must not.
	Tx() *sql.Tx

	// Recorded tells whether the key has been applied before, and what was recorded then. Such a claim can only be
	// released.
	Recorded() (outputs []byte, done bool)

	// Commit records outputs, byte for byte, with the key and commits them with the handler's writes. It ends the claim
	// also when it fails; then nothing was committed, except by a handler that ended the transaction itself. In that
	// case the error wraps sql.ErrTxDone.
	Commit(outputs []byte) error

	// Release rolls back, so that nothing stays: neither key nor writes. After the claim has ended it does nothing and
	// returns nil. An error that wraps sql.ErrTxDone says that the handler committed the transaction itself.
	Release() error
}
