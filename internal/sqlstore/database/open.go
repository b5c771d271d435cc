package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
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

const maxService = 100

// ValidateService returns an error unless service can be the name under which a store on a database of this kind keeps
// what is its own. On a server a name is required. On SQLite, where a file is a service's own, it may be empty.
func ValidateService(kind Kind, service string) error {
	if service == "" && kind != SQLite {
		return errors.New(`the Service is empty: name the service, such as "shop". Several services may use this database ` +
			"server, and two of them with a handler of the same name would take each other's messages for their own")
	}
	if len(service) > maxService {
		return fmt.Errorf("the Service has %d bytes: give it a name of at most %d", len(service), maxService)
	}
	for _, r := range service {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-') {
			return fmt.Errorf("the Service %q has the character %q: use letters a to z, digits, dots, underscores and hyphens",
				service, r)
		}
	}
	return nil
}
