package chain

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Claim is in a message's context while an idempotent receiver runs the handler. It shows other parts that they are
// inside of the receiver's transaction.
type Claim interface {
	// Holds reports whether msg is the claimed message. The context may be of another message by now.
	Holds(msg *message.Message) bool
	// Locks reports whether the transaction is open and keeps other writers out of db: to wait for db would be to wait
	// for itself.
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

// Claimed reports whether this chain runs inside of a claim on its own message: a part was attached twice, or inside of
// the receiver though it belongs outside. Such a part must let errors pass outward. Writes of an attempt that it
// retries would still be in the transaction, and a message that it dead-letters would commit as a success.
func (c *Call) Claimed() bool {
	claim := ClaimOf(c.Ctx)
	return claim != nil && claim.Holds(c.Msg)
}
