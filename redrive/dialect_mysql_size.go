package redrive

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/mysql"
)

// mysqlOverhead is for all of a statement, or of a row, that does not come with the letter.
const mysqlOverhead = 64 << 10

// mysqlLimit is what fits into one packet, whichever way it goes.
func mysqlLimit(ctx context.Context, db *sql.DB) (int, error) {
	var packet int
	if err := db.QueryRowContext(ctx, `SELECT @@max_allowed_packet`).Scan(&packet); err != nil {
		return 0, fmt.Errorf("ask for max_allowed_packet: %w", err)
	}
	return max(1, packet-mysqlOverhead), nil
}

// mysqlTooLarge tells whether err, of a letter of size bytes, is a refusal for size. A driver that writes the values into
// the statement may double them by escaping; and the server hangs up in the middle of a packet that is too large, so that
// as a rule its answer is lost.
func mysqlTooLarge(err error, size, limit int) bool {
	switch mysql.Number(err) {
	case mysql.PacketTooLarge, mysql.RowTooLarge:
		return true
	case 0:
		return 2*size > limit && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
	}
	return false
}
