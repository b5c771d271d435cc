package crashlimit

import (
	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/internal/database/mysql"
)

var mysqlDialect = dialect{
	kind:  database.MySQL,
	query: func(statement string) string { return statement },
	text:  asBytes, // so that no character set of the connection touches it
	// From UTC: the session's time zone may have an hour twice a year that comes twice.
	now:     `(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)`,
	enter:   `INSERT IGNORE` + newMark,
	sweep:   `DELETE FROM spillway_deliveries WHERE marked_at < now() - ? LIMIT 500`,
	write:   unless(mysql.Undone),
	read:    once,
	timeout: statementTimeout,
}
