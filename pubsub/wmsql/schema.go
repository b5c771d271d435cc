package wmsql

import (
	"context"
	"database/sql"
	"errors"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
)

var errNoContext = errors.New("wmsql: the context is nil: give context.Background() if there is no other")

// Schema returns watermill-sql's schema for db with payloads of any bytes: BYTEA or LONGBLOB. It is the default of
// Subscriber and Publisher; give it to watermill-sql's own publisher and subscriber too. Their default is JSON, which
// refuses all other payloads. A table that exists keeps its type. Schema asks db which database it is.
func Schema(ctx context.Context, db *sql.DB) (wsql.SchemaAdapter, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	if db == nil {
		return nil, errors.New("wmsql: the db of Schema is nil: give the database that the messages are in")
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	d, err := detect(ctx, db)
	if err != nil {
		return nil, err
	}
	return d.schema(d.binary, 0), nil
}
