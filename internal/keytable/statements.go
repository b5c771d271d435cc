package keytable

import (
	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/internal/database/mysql"
)

// Dialect is how one database enters, finds and records keys. It is the same for a store, which has a transaction of
// its own, and for a subscriber whose transaction is joined.
type Dialect struct {
	// enter inserts a row: consumer, id, applied_at, fingerprint, version, nonce. Where the key is there it changes
	// nothing, or is a duplicate.
	enter     string
	duplicate func(error) bool
	// upsert is enter for a key with a version: it also takes a key that is applied with a lower one. Where there is no
	// such statement, advance does that after enter: applied_at, fingerprint, version, nonce, consumer, id, version.
	upsert, advance string
	// find reads outputs, fingerprint, version, and whether no lease is on the key: consumer, id.
	find string
	// takeOver takes a key whose lease is over: applied_at, fingerprint, version, nonce, consumer, id.
	takeOver string
	// record records outputs: outputs, consumer, id.
	record string
	// entered counts a key that a certain transaction entered: consumer, id, nonce.
	entered string
	// published forgets the outputs of an applied key: consumer, id, version. In PostgreSQL it does not wait for who is
	// about to apply a higher version, which has outputs of its own.
	published string
	// bytes says that text goes as bytes, so that no character set of the connection touches it.
	bytes bool
}

// DialectOf returns the dialect of a kind of database.
func DialectOf(kind database.Kind) *Dialect {
	return map[database.Kind]*Dialect{database.Postgres: &InPostgres, database.MySQL: &InMySQL,
		database.SQLite: &InSQLite}[kind]
}

// The clocks of the databases, in Unix milliseconds. Leases are measured by these alone, so that the clocks of
// processes do not matter.
const (
	nowPostgres = `(extract(epoch FROM clock_timestamp()) * 1000)::bigint`
	// a zone's time is ambiguous in autumn
	nowMySQL  = `(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)`
	nowSQLite = `CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)`
)

// leaseOver is true of a row whose lease has expired. One that began in the future, by more than a second, is over too:
// the clock was set back, and to wait for it might take as long as it was wrong.
func leaseOver(now string) string {
	return `expires_at IS NOT NULL AND (expires_at <= ` + now + ` OR applied_at > ` + now + ` + 1000)`
}

// InPostgres, InMySQL (MariaDB too) and InSQLite are the dialects.
var (
	InPostgres = Dialect{
		enter: `INSERT INTO spillway_keys (consumer, id, applied_at, fingerprint, version, nonce) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`,
		upsert: `INSERT INTO spillway_keys AS k (consumer, id, applied_at, fingerprint, version, nonce) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (consumer, id) DO UPDATE SET applied_at = EXCLUDED.applied_at, fingerprint = EXCLUDED.fingerprint, version = EXCLUDED.version, nonce = EXCLUDED.nonce, outputs = NULL
WHERE k.expires_at IS NULL AND (k.version IS NULL OR k.version < EXCLUDED.version)`,
		find: `SELECT outputs, fingerprint, version, expires_at IS NULL FROM spillway_keys WHERE consumer = $1 AND id = $2`,
		takeOver: `UPDATE spillway_keys SET applied_at = $1, fingerprint = $2, version = $3, nonce = $4, outputs = NULL, expires_at = NULL
WHERE consumer = $5 AND id = $6 AND ` + leaseOver(nowPostgres),
		record:  `UPDATE spillway_keys SET outputs = $1 WHERE consumer = $2 AND id = $3`,
		entered: `SELECT count(*) FROM spillway_keys WHERE consumer = $1 AND id = $2 AND nonce = $3`,
		published: `UPDATE spillway_keys SET outputs = NULL WHERE ctid IN (SELECT ctid FROM spillway_keys
WHERE consumer = $1 AND id = $2 AND version IS NOT DISTINCT FROM $3::bigint AND outputs IS NOT NULL AND expires_at IS NULL FOR UPDATE SKIP LOCKED)`,
	}
	InMySQL = Dialect{
		enter:     `INSERT INTO spillway_keys (consumer, id, applied_at, fingerprint, version, nonce) VALUES (?, ?, ?, ?, ?, ?)`,
		duplicate: func(err error) bool { return mysql.Number(err) == mysql.Duplicate },
		advance: `UPDATE spillway_keys SET applied_at = ?, fingerprint = ?, version = ?, nonce = ?, outputs = NULL
WHERE consumer = ? AND id = ? AND expires_at IS NULL AND (version IS NULL OR version < ?)`,
		find: `SELECT outputs, fingerprint, version, expires_at IS NULL FROM spillway_keys WHERE consumer = ? AND id = ?`,
		takeOver: `UPDATE spillway_keys SET applied_at = ?, fingerprint = ?, version = ?, nonce = ?, outputs = NULL, expires_at = NULL
WHERE consumer = ? AND id = ? AND ` + leaseOver(nowMySQL),
		record:    `UPDATE spillway_keys SET outputs = ? WHERE consumer = ? AND id = ?`,
		entered:   `SELECT COUNT(*) FROM spillway_keys WHERE consumer = ? AND id = ? AND nonce = ?`,
		published: `UPDATE spillway_keys SET outputs = NULL WHERE consumer = ? AND id = ? AND version <=> ? AND outputs IS NOT NULL AND expires_at IS NULL`,
		bytes:     true,
	}
	InSQLite = Dialect{
		enter: `INSERT INTO spillway_keys (consumer, id, applied_at, fingerprint, version, nonce) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		upsert: `INSERT INTO spillway_keys (consumer, id, applied_at, fingerprint, version, nonce) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (consumer, id) DO UPDATE SET applied_at = excluded.applied_at, fingerprint = excluded.fingerprint, version = excluded.version, nonce = excluded.nonce, outputs = NULL
WHERE expires_at IS NULL AND (version IS NULL OR version < excluded.version)`,
		find: `SELECT outputs, fingerprint, version, expires_at IS NULL FROM spillway_keys WHERE consumer = ? AND id = ?`,
		takeOver: `UPDATE spillway_keys SET applied_at = ?, fingerprint = ?, version = ?, nonce = ?, outputs = NULL, expires_at = NULL
WHERE consumer = ? AND id = ? AND ` + leaseOver(nowSQLite),
		record:    `UPDATE spillway_keys SET outputs = ? WHERE consumer = ? AND id = ?`,
		entered:   `SELECT count(*) FROM spillway_keys WHERE consumer = ? AND id = ? AND nonce = ?`,
		published: `UPDATE spillway_keys SET outputs = NULL WHERE consumer = ? AND id = ? AND version IS ? AND outputs IS NOT NULL AND expires_at IS NULL`,
	}
)
