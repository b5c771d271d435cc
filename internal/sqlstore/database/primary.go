package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres"
)

// readOnly asks a server whether it only reads. SQLite says so at the first write.
var readOnly = map[Kind]string{
	Postgres: `SELECT CASE WHEN pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on' THEN 1 ELSE 0 END`,
	MySQL:    `SELECT CASE WHEN @@global.innodb_read_only THEN 'ON' ELSE @@global.read_only END`,
}

// PrimaryRemedy is what to do about a server that only reads.
const PrimaryRemedy = "the database only reads: it is a standby, a replica, or set to read-only; give the address of the primary, " +
	"with pgx as host=a,b and target_session_attrs=read-write, with MySQL's driver as rejectReadOnly=true and an address that follows it"

var errReadOnly = errors.New(PrimaryRemedy)

// ReadOnly reports whether a server refused a statement because it only reads.
func ReadOnly(err error) bool {
	return postgres.State(err) == "25006" || slices.Contains([]uint16{mysql.ReadOnlyTable, 1290, 1792, 1836}, mysql.Number(err))
}

// RequirePrimary returns an error if db leads to a server that only reads. A service would hold all its messages.
func RequirePrimary(ctx context.Context, db *sql.DB) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	on, err := Detect(ctx, db)
	if err != nil {
		return err
	}
	question, asks := readOnly[on.kind]
	if !asks {
		return nil
	}
	var only string
	if err := db.QueryRowContext(ctx, question).Scan(&only); err != nil {
		return fmt.Errorf("ask the database whether it only reads: %w", err)
	}
	if only == "0" || only == "OFF" {
		return nil
	}
	return errReadOnly
}
