package wmsql

import (
	"context"
	"database/sql"
	"errors"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
)

// Schema returns watermill-sql's schema for db with payloads of any bytes, BYTEA or LONGBLOB, for those who want to give
// it to watermill-sql's own publisher and subscriber too. It asks db what it is. Watermill-sql's default is JSON, which
// refuses all other payloads. A table that is there keeps its type, whatever the schema says.
func Schema(ctx context.Context, db *sql.DB) (wsql.SchemaAdapter, error) {
	if db == nil {
		return nil, errors.New("wmsql: Schema: the db is nil")
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	d, err := detect(ctx, db)
	if err != nil {
		return nil, err
	}
	return d.schema(d.binary, 0), nil
}
