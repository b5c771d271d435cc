package keytable

import (
	"fmt"
	"strings"

	"github.com/watermill-spillway/spillway/internal/database"
)

// leasing is how one database leases keys. A lease leaves alone what is of the applied key: outputs, fingerprint,
// version.
type leasing struct {
	// enter inserts a leased row: consumer, id, duration. Where the key is there it changes nothing, or is a duplicate.
	enter string
	// take leases a key whose lease is over, and that was not applied before it: duration, consumer, id. With takeVersion
	// it may also be applied, with a lower version or none: duration, consumer, id, version.
	take, takeVersion string
	// fence reads the fence of a lease that was just won: consumer, id.
	fence string
	// renew: duration, consumer, id, fence.
	renew string
	// held counts what renew would change: consumer, id, fence.
	held string
	// complete makes the key an applied one: outputs, fingerprint, version, consumer, id, fence.
	complete string
	// completed counts what complete left behind: consumer, id, fence.
	completed string
	// release: consumer, id, fence.
	release string
}

// The clocks in microseconds, as far as they go, for fences.
const (
	microsPostgres = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`
	microsMySQL    = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`
	microsSQLite   = nowSQLite + ` * 1000`
)

var (
	leasings = map[database.Kind]leasing{
		database.Postgres: newLeasing(nowPostgres, microsPostgres, "GREATEST", " ON CONFLICT DO NOTHING").numbered(),
		database.MySQL:    newLeasing(nowMySQL, microsMySQL, "GREATEST", ""),
		database.SQLite:   newLeasing(nowSQLite, microsSQLite, "MAX", " ON CONFLICT DO NOTHING"),
	}
)

// newLeasing writes the statements with the clock of a database, in milliseconds and microseconds, and its greatest of
// two numbers. A fence rises by at least two, because completing takes one: so a row that is applied with the fence
// after a lease's own was completed by that lease, and not by a claim that took over without a fence.
func newLeasing(now, micros, greatest, orNothing string) leasing {
	const (
		key   = `WHERE consumer = ? AND id = ?`
		owned = key + ` AND fence = ? AND expires_at > 0`
	)
	begin := fmt.Sprintf(`applied_at = %s, expires_at = %s + ?`, now, now)
	take := fmt.Sprintf(`UPDATE spillway_keys SET %s, fence = %s(COALESCE(fence, 0) + 2, %s) %s`, begin, greatest, micros,
		key)
	return leasing{
		enter: fmt.Sprintf(`INSERT INTO spillway_keys (consumer, id, applied_at, fence, expires_at) VALUES (?, ?, %s, %s, %s + ?)%s`,
			now, micros, now, orNothing),
		take: take + fmt.Sprintf(` AND version IS NULL AND %s`, leaseOver(now)),
		takeVersion: take + fmt.Sprintf(` AND (expires_at IS NULL OR %s) AND (version IS NULL OR version < ?)`,
			leaseOver(now)),
		fence: `SELECT fence FROM spillway_keys ` + key,
		renew: fmt.Sprintf(`UPDATE spillway_keys SET %s %s`, begin, owned),
		held:  `SELECT count(*) FROM spillway_keys ` + owned,
		complete: fmt.Sprintf(`UPDATE spillway_keys SET outputs = ?, fingerprint = ?, version = ?, applied_at = %s, fence = fence + 1, expires_at = NULL %s`,
			now, owned),
		completed: `SELECT count(*) FROM spillway_keys ` + key + ` AND fence - 1 = ? AND expires_at IS NULL`,
		release:   `UPDATE spillway_keys SET expires_at = 0 ` + owned,
	}
}

// numbered writes each ? as $1, $2 and so on.
func (l leasing) numbered() leasing {
	for _, statement := range []*string{&l.enter, &l.take, &l.takeVersion, &l.fence, &l.renew, &l.held, &l.complete,
		&l.completed, &l.release} {
		for n := 1; strings.Contains(*statement, "?"); n++ {
			*statement = strings.Replace(*statement, "?", fmt.Sprintf("$%d", n), 1)
		}
	}
	return l
}
