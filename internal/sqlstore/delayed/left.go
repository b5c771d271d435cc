package delayed

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// Left returns what waits in db for a service that has no Store there, such as one that went back to stage topics. It
// makes no table: without one nothing waits. It reads the whole table, for at most 30 seconds.
func Left(ctx context.Context, db *sql.DB, service string) ([]Waiting, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	on, err := database.Detect(ctx, db)
	there := false
	if err == nil {
		there, err = on.Has(ctx, table)
	}
	if err != nil {
		return nil, fmt.Errorf("delay: look for messages that are left: %w", err)
	}
	if !there {
		return nil, nil
	}
	s := &Store{db: on, service: service, dialect: dialects[on.Kind()]}
	s.statements = statementsFor(on, s.dialect)
	return s.Waiting(ctx)
}
