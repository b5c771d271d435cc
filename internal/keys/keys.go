// Package keys is the table in which idempotent receivers keep what was applied. It is the same whoever holds the
// transaction, the receiver's own store or a subscriber whose transaction it joins, so that a message which comes one
// way is recognised when it comes the other.
package keys

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/watermill-spillway/spillway/internal/schema"
)

const table = "spillway_keys"

var (
	columns = []string{"consumer", "id", "outputs", "applied_at"}
	primary = []string{"consumer", "id"}
)

// SQLite has row ids on purpose: without them recorded outputs would lie in the index of the keys and make it deep. With
// outputs of 1 KiB that cost half as much again a message, and saved a tenth without any.
var SQLite = schema.Table{
	Name: table,
	Create: []string{`CREATE TABLE IF NOT EXISTS spillway_keys (
	consumer   TEXT    NOT NULL,
	id         TEXT    NOT NULL,
	outputs    BLOB,
	applied_at INTEGER NOT NULL,
	PRIMARY KEY (consumer, id)
)`},
	Columns: columns,
	Key:     primary,
}

// Postgres compares the columns of the key by their bytes, whatever the database's collation is: an upgrade of the
// operating system's collations cannot spoil their index.
var Postgres = schema.Table{
	Name: table,
	Create: []string{`CREATE TABLE IF NOT EXISTS spillway_keys (
	consumer   text COLLATE "C" NOT NULL,
	id         text COLLATE "C" NOT NULL,
	outputs    bytea,
	applied_at bigint NOT NULL,
	PRIMARY KEY (consumer, id)
)`},
	Columns: columns,
	Key:     primary,
}

// MySQL compares the columns of the key by their bytes too: its text types ignore trailing spaces, and as a rule case.
// What Column returns is at most 255 bytes long, and an index of InnoDB takes 3072.
var MySQL = schema.Table{
	Name: table,
	Create: []string{`CREATE TABLE IF NOT EXISTS spillway_keys (
	consumer   VARBINARY(255) NOT NULL,
	id         VARBINARY(255) NOT NULL,
	outputs    LONGBLOB,
	applied_at BIGINT NOT NULL,
	PRIMARY KEY (consumer, id)
) ENGINE=InnoDB`},
	Columns: columns,
	Key:     primary,
}

// Statements that a store and a subscriber whose transaction is joined have in common.
const (
	// SelectPostgres and SelectMySQL read the outputs of a key.
	SelectPostgres = `SELECT outputs FROM spillway_keys WHERE consumer = $1 AND id = $2`
	SelectMySQL    = `SELECT outputs FROM spillway_keys WHERE consumer = ? AND id = ?`
	// RecordMySQL records the outputs of a key.
	RecordMySQL = `UPDATE spillway_keys SET outputs = ? WHERE consumer = ? AND id = ?`
	// FindMySQL counts a key that was entered at a certain time.
	FindMySQL = `SELECT COUNT(*) FROM spillway_keys WHERE consumer = ? AND id = ? AND applied_at = ?`
)

const (
	// maxReadable is the longest key, in bytes, that is stored as it is.
	maxReadable = 255
	// hashed begins every key that is stored as its hash, and none that is stored as it is.
	hashed = "sha256:"
)

// Column is the form in which a part of a key stands in a column: what a person can read stays as it is, everything
// else becomes a hash. No two texts have the same form, since what looks like a hash is hashed too.
func Column(s string) string {
	if len(s) <= maxReadable && !strings.HasPrefix(s, hashed) && readable(s) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return hashed + hex.EncodeToString(sum[:])
}

func readable(s string) bool {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return utf8.ValidString(s)
}
