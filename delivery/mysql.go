package delivery

import (
	"context"
	"database/sql"

	"github.com/watermill-spillway/spillway/internal/mysql"
	"github.com/watermill-spillway/spillway/internal/schema"
)

var mysqlDialect = dialect{
	tables: mysqlTables,
	ensure: mysql.Ensure,
	query:  func(statement string) string { return statement },
	text:   asBytes, // so that no character set of the connection touches it
	// From UTC: the session's time zone may have an hour twice a year that comes twice.
	now:   `(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)`,
	enter: `INSERT IGNORE` + newMark,
	again: `INSERT INTO spillway_deliveries (service, consumer, id, process, deliveries, marked_at) VALUES (?, ?, ?, ?, LAST_INSERT_ID(1), now())
ON DUPLICATE KEY UPDATE deliveries = LAST_INSERT_ID(deliveries + 1), process = VALUES(process), marked_at = VALUES(marked_at)`,
	sweep:   `DELETE FROM spillway_deliveries WHERE marked_at < now() - ? LIMIT 500`,
	count:   lastInserted,
	write:   unless(mysql.Undone),
	read:    once,
	timeout: statementTimeout,
}

// lastInserted reads the count where MySQL, which returns no rows from a statement that writes, has room for a number.
func lastInserted(ctx context.Context, db *sql.DB, statement string, args []any) (int, error) {
	result, err := db.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	n, err := result.LastInsertId()
	return int(n), err
}

// mysqlTables compare their keys by bytes: text types ignore trailing spaces, and as a rule case.
var mysqlTables = []schema.Table{
	{Name: processTable, Columns: processColumns, Key: processKey, Create: []string{`CREATE TABLE IF NOT EXISTS spillway_processes (
	service    VARBINARY(255) NOT NULL,
	id         VARBINARY(255) NOT NULL PRIMARY KEY,
	node       VARBINARY(255) NOT NULL,
	beat_ms    BIGINT NOT NULL,
	started_at BIGINT NOT NULL,
	beats      BIGINT NOT NULL,
	lost_at    BIGINT
) ENGINE=InnoDB`}},
	{Name: deliveryTable, Columns: deliveryColumns, Key: deliveryKey, Create: []string{`CREATE TABLE IF NOT EXISTS spillway_deliveries (
	service    VARBINARY(255) NOT NULL,
	consumer   VARBINARY(255) NOT NULL,
	id         VARBINARY(255) NOT NULL,
	deliveries BIGINT NOT NULL,
	process    VARBINARY(255) NOT NULL,
	marked_at  BIGINT NOT NULL,
	PRIMARY KEY (service, consumer, id)
) ENGINE=InnoDB`}},
}
