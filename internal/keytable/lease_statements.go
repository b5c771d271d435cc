package keytable

import (
	"github.com/watermill-spillway/spillway/internal/database"
)

// leasing is how one database leases keys. A lease leaves alone what is of the applied key: outputs, fingerprint,
// version.
type leasing struct {
	// enter inserts a leased row: consumer, id, duration. Where the key is there it changes nothing, or is a duplicate.
	enter string
	// take leases a key whose lease is over, and that was not applied before it: duration, consumer, id. With
	// takeVersion it may also be applied, with a lower version or none: duration, consumer, id, version.
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

var leasings = map[database.Kind]leasing{
	// The fence is by the time at which the row is written, after the statement waited for its lock.
	database.Postgres: newLeasing(database.Postgres, `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`,
		"GREATEST", " ON CONFLICT DO NOTHING"),
	database.MySQL:  newLeasing(database.MySQL, "now_us()", "GREATEST", ""),
	database.SQLite: newLeasing(database.SQLite, "now_us()", "MAX", " ON CONFLICT DO NOTHING"),
}

// newLeasing writes the statements with the clock of a database in microseconds, as far as it goes, and its greatest of
// two numbers. A fence rises by at least two, because completing takes one: so a row that is applied with the fence
// after a lease's own was completed by that lease, and not by a claim that took over without a fence.
func newLeasing(kind database.Kind, micros, greatest, orNothing string) leasing {
	const (
		key   = `WHERE consumer = ? AND id = ?`
		owned = key + ` AND fence = ? AND expires_at > 0`
		begin = `applied_at = now_ms(), expires_at = now_ms() + ?`
	)
	take := `UPDATE spillway_keys SET ` + begin + `, fence = ` + greatest + `(COALESCE(fence, 0) + 2, ` + micros + `) ` +
		key
	l := leasing{
		enter: `INSERT INTO spillway_keys (consumer, id, applied_at, fence, expires_at) VALUES (?, ?, now_ms(), ` + micros +
			`, now_ms() + ?)` + orNothing,
		take:        take + ` AND version IS NULL AND ` + leaseOver,
		takeVersion: take + ` AND (expires_at IS NULL OR ` + leaseOver + `) AND (version IS NULL OR version < ?)`,
		fence:       `SELECT fence FROM spillway_keys ` + key,
		renew:       `UPDATE spillway_keys SET ` + begin + ` ` + owned,
		held:        `SELECT count(*) FROM spillway_keys ` + owned,
		complete: `UPDATE spillway_keys SET outputs = ?, fingerprint = ?, version = ?, applied_at = now_ms(), fence = fence + 1, expires_at = NULL ` +
			owned,
		completed: `SELECT count(*) FROM spillway_keys ` + key + ` AND fence - 1 = ? AND expires_at IS NULL`,
		release:   `UPDATE spillway_keys SET expires_at = 0 ` + owned,
	}
	for _, text := range []*string{&l.enter, &l.take, &l.takeVersion, &l.fence, &l.renew, &l.held, &l.complete,
		&l.completed, &l.release} {
		*text = statement(kind, *text)
	}
	return l
}
