package pgxstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/idempotency/internal/claims"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
)

// New returns the store that idempotency.NewStore returns, except that its claims are made through pgx. Open db with
// github.com/jackc/pgx/v5/stdlib, as by stdlib.OpenDBFromPool. On connections of another driver its claims are those of
// idempotency.NewStore. A database other than PostgreSQL is an error. The store does not close db.
func New(ctx context.Context, db *sql.DB, service string) (idempotency.Store, error) {
	store, err := idempotency.NewStore(ctx, db, service)
	if err != nil {
		return nil, err
	}
	if own, ok := store.(interface {
		ClaimsBy(func(claims.Begin) claims.Begin) (store any, ok bool)
	}); ok {
		through := func(plain claims.Begin) claims.Begin {
			return func(ctx context.Context, db *sql.DB, row keytable.Row) (claims.Claim, error) {
				return newClaim(ctx, db, row, plain)
			}
		}
		if of, ok := own.ClaimsBy(through); ok {
			return of.(idempotency.Store), nil
		}
	}
	return nil, errors.New("pgxstore: New: the database is not PostgreSQL: use idempotency.NewStore")
}
