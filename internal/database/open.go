package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/internal/database/schema"
)

// startTimeout bounds what Open asks of the database.
const startTimeout = 30 * time.Second

// Open is how a store begins: it asks db which database it is, verifies the name of the service, and brings the tables
// to their newest version, within 30 seconds. Errors begin with the name of the caller, such as "delay: NewStore". Open
// does not close db.
func Open(ctx context.Context, caller string, db *sql.DB, service string, tables ...schema.Table) (*Database, error) {
	if ctx == nil {
		return nil, errors.New(caller + ": the context is nil: give context.Background() if there is no other")
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	on, err := Detect(ctx, db)
	if err == nil {
		err = ValidateService(on.kind, service)
	}
	if err == nil {
		err = on.Upgrade(ctx, tables...)
	}
	if err == nil {
		on.largest, err = on.engine.Largest(ctx, db)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", caller, err)
	}
	return on, nil
}
