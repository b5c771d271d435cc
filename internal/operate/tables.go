package operate

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/database"
)

// Tables returns the versions of Spillway's tables in the database, by their component.
func (d *Desk) Tables(ctx context.Context) (versions map[string]int, err error) {
	on, err := database.Detect(ctx, d.Store.Inside().DB())
	if err != nil {
		return nil, err
	}
	err = on.Query(ctx, func() { versions = map[string]int{} }, func(rows *sql.Rows) error {
		var component []byte
		var version int
		err := rows.Scan(&component, &version)
		versions[string(component)] = version
		return err
	}, `SELECT component, MAX(version) FROM spillway_schema GROUP BY component`)
	if err != nil {
		err = fmt.Errorf("read the versions of the tables: %w", err)
	}
	return versions, err
}
