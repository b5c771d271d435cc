package connect

import (
	"errors"
	"slices"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// MayNot reports whether a statement failed because the role may only look.
func MayNot(err error) bool {
	var postgres *pgconn.PgError
	if errors.As(err, &postgres) {
		return postgres.Code == "42501" || postgres.Code == "25006"
	}
	var mariadb *mysql.MySQLError
	if errors.As(err, &mariadb) {
		return slices.Contains([]uint16{1044, 1142, 1143, 1227, 1290, 1792}, mariadb.Number)
	}
	var file *sqlite.Error
	return errors.As(err, &file) && file.Code()&0xff == sqlite3.SQLITE_READONLY
}
