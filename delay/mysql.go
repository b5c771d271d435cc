package delay

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/internal/database/mysql"
)

var mysqlDialect = dialect{
	kind:  database.MySQL,
	query: func(statement string) string { return statement },
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
