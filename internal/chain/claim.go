package chain

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Claim is what an idempotent receiver leaves in its message's context while the handler runs, so that the other parts
// know that they stand inside of its transaction.
type Claim interface {
	// Holds tells whether it is msg that is claimed. The context may have gone on to another message.
	Holds(msg *message.Message) bool
	// Locks tells whether the transaction is open and keeps other writers out of db: who waits for db waits for itself.
	Locks(db *sql.DB) bool
}

type claimKey struct{}

// WithClaim returns ctx with the claim. A nil claim hides an outer one.
func WithClaim(ctx context.Context, c Claim) context.Context {
	return context.WithValue(ctx, claimKey{}, c)
}

// ClaimOf returns the innermost claim in ctx, or nil.
func ClaimOf(ctx context.Context) Claim {
	c, _ := ctx.Value(claimKey{}).(Claim)
	return c
}

// Claimed tells whether this chain runs inside of a claim on its own message: somebody attached it twice, or put a part
// inside of the receiver that belongs outside. What such a part would retry has its writes still in the transaction, and
// what it would set aside would commit as a success; so it lets errors pass outward.
func (c *Call) Claimed() bool {
	claim := ClaimOf(c.Ctx)
	return claim != nil && claim.Holds(c.Msg)
}
