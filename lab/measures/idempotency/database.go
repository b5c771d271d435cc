package main

import (
	"context"
	"database/sql"
	"errors"

	_ "github.com/lib/pq" // registers "postgres"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/idempotency/pgxstore"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
)

// side is a database as one driver speaks to it, and its store.
type side struct {
	db, driver, registered string
	consumers              []int
	name                   string
	store                  newStore
}

var sides = []side{
	{"postgres", "pgx", "pgx", []int{1, 8}, "pgxstore", pgxstore.New},
	{"postgres", "pgx", "pgx", []int{1, 8}, "idempotency", idempotency.NewStore},
	{"postgres", "lib/pq", "postgres", []int{1}, "idempotency", idempotency.NewStore},
	{"mariadb", "go-sql-driver", "mysql", []int{1, 8}, "idempotency", idempotency.NewStore},
	{"sqlite", "modernc", "sqlite", []int{1}, "idempotency", idempotency.NewStore},
}

type newStore = func(context.Context, *sql.DB, string) (idempotency.Store, error)

// database is the one that is measured, with a table of effects and a store of keys.
type database struct {
	*harness.Database
	side
	keys idempotency.Store
}

func open(ctx context.Context, s side) (*database, error) {
	made, err := harness.OpenWith(ctx, s.db, s.registered)
	if err != nil {
		return nil, err
	}
	d := &database{Database: made, side: s}
	if err = d.Effects(ctx); err == nil {
		d.keys, err = s.store(ctx, d.DB, "bench")
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}
