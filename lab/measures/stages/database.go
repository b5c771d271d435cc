package main

import (
	"context"
	"errors"

	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/middleware/stages/delay"
)

// database is one with a delay store.
type database struct {
	*harness.Database
	store *delay.Store
}

func open(ctx context.Context, name string) (*database, error) {
	made, err := harness.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	store, err := delay.NewStore(ctx, made.DB, "bench")
	if err != nil {
		return nil, errors.Join(err, made.Close())
	}
	return &database{made, store}, nil
}
