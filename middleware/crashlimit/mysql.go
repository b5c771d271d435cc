package crashlimit

import (
	"github.com/watermill-spillway/spillway/internal/database/mysql"
	"github.com/watermill-spillway/spillway/internal/database/schema"
)

var mysqlDialect = dialect{
	tables: mysqlTables,
	ensure: mysql.Ensure,
	query:  func(statement string) string { return statement },
	text:   asBytes, // so that no character set of the connection touches it
	// From UTC: the session's time zone may have an hour twice a year that comes twice.
	now:     `(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)`,
	enter:   `INSERT IGNORE` + newMark,
	sweep:   `DELETE FROM spillway_deliveries WHERE marked_at < now() - ? LIMIT 500`,
	write:   unless(mysql.Undone),
	read:    once,
	timeout: statementTimeout,
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
	redrives   BIGINT NOT NULL,
	delivery   BIGINT NOT NULL,
	process    VARBINARY(255) NOT NULL,
	marked_at  BIGINT NOT NULL,
	PRIMARY KEY (service, consumer, id, redrives, delivery)
) ENGINE=InnoDB`}},
}
