package delay

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/watermill-spillway/spillway/internal/database/mysql"
	"github.com/watermill-spillway/spillway/internal/database/schema"
)

var mysqlDialect = dialect{
	table:  mysqlTable,
	ensure: mysql.Ensure,
	query:  func(statement string) string { return statement },
	// From UTC: the session's time zone may have an hour twice a year that comes twice.
	now: `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`,
	// Otherwise, where many rows are due, all of them would be sorted, and locked.
	hint:        ` FORCE INDEX (spillway_delayed_ready)`,
	hintKey:     ` FORCE INDEX (PRIMARY)`,
	skip:        ` FOR UPDATE SKIP LOCKED`,
	behind:      byColumns,
	after:       ofColumns,
	among:       listed,
	write:       unless(mysql.Undone),
	transaction: mysql.Write,
	read:        once,
	limit:       mysqlLimit,
	tooLarge:    mysqlTooLarge,
	answered:    func(err error) bool { return mysql.Number(err) != 0 },
}

// mysqlOverhead is for all of a statement, or of a row, that does not come with the message.
const mysqlOverhead = 64 << 10

// mysqlLimit is what fits into one packet, whichever way it goes. The server hangs up on a larger one, and would take the
// transaction that a message is put in with it. A driver that writes the values into the statement may need twice as much.
func mysqlLimit(ctx context.Context, db *sql.DB) (int, error) {
	var packet int
	if err := db.QueryRowContext(ctx, `SELECT @@max_allowed_packet`).Scan(&packet); err != nil {
		return 0, fmt.Errorf("ask for max_allowed_packet: %w", err)
	}
	return max(1, packet-mysqlOverhead), nil
}

func mysqlTooLarge(err error) bool {
	n := mysql.Number(err)
	return n == mysql.PacketTooLarge || n == mysql.RowTooLarge ||
		strings.Contains(err.Error(), "packet for query is too large") // the driver's own limit
}

// mysqlTable is as postgresTable is, in bytes alone: text has a collation, under which others are the same.
var mysqlTable = schema.Table{Name: "spillway_delayed", Columns: columns, Key: key, Create: []string{`
CREATE TABLE IF NOT EXISTS spillway_delayed (
	seq      BIGINT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
	service  VARBINARY(255)  NOT NULL,
	topic    VARBINARY(1024) NOT NULL,
	size     BIGINT          NOT NULL,
	due_at   BIGINT          NOT NULL,
	ready_at BIGINT          NOT NULL,
	token    VARBINARY(64)   NOT NULL DEFAULT '',
	failures BIGINT          NOT NULL DEFAULT 0,
	id       LONGBLOB        NOT NULL,
	metadata LONGBLOB        NOT NULL,
	payload  LONGBLOB,
	INDEX spillway_delayed_ready (service, ready_at, due_at, seq)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC`}}
