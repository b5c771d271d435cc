package letters

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/watermill-spillway/spillway/internal/database/mysql"
)

// mysqlOverhead is for all of a statement, or of a row, that does not come with the letter: names, times, and who marked it.
const mysqlOverhead = 8 << 10

// mysqlLimit is what fits into one packet, whichever way it goes.
func mysqlLimit(ctx context.Context, db *sql.DB) (int, error) {
	var packet int
	if err := db.QueryRowContext(ctx, `SELECT @@max_allowed_packet`).Scan(&packet); err != nil {
		return 0, fmt.Errorf("ask for max_allowed_packet: %w", err)
	}
	return max(1, packet-mysqlOverhead), nil
}

// mysqlTooLarge reports whether err, of a letter of size bytes, is a refusal for size. The server hangs up in the middle of
// a packet that is too large, so that as a rule its answer is lost. A driver with a lower limit of its own says so in words.
func mysqlTooLarge(err error, size, limit int) bool {
	switch mysql.Number(err) {
	case mysql.PacketTooLarge, mysql.RowTooLarge:
		return true
	case 0:
		ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
		return 2*size > limit && !ended || strings.Contains(err.Error(), "packet for query is too large")
	}
	return false
}
