package keytable

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// The statements here carry their values in their text, so that a driver sends them without preparing them, and in
// PostgreSQL several at once. No value is quoted: numbers are digits, and everything else is hexadecimal digits of its
// bytes. With that alphabet a value cannot end the literal it stands in, whatever it holds and however the server is
// set.

// literal writes values as a dialect reads them.
type literal struct {
	text, bytes [2]string // before and behind the hexadecimal digits
}

var (
	literalPostgres = literal{[2]string{`convert_from(decode('`, `','hex'),'UTF8')`}, [2]string{`decode('`, `','hex')`}}
	literalHex      = literal{[2]string{`'`, `'`}, [2]string{`'`, `'`}} // which the prepared statement decodes
	// a string of bytes, which no character set touches
	literalMySQL = literal{[2]string{`x'`, `'`}, [2]string{`x'`, `'`}}
)

func (l *literal) appendText(b []byte, s string) []byte {
	b = append(b, l.text[0]...)
	b = hex.AppendEncode(b, []byte(s))
	return append(b, l.text[1]...)
}

func (l *literal) appendBytes(b, value []byte) []byte {
	if value == nil {
		return append(b, `NULL`...)
	}
	b = append(b, l.bytes[0]...)
	b = hex.AppendEncode(b, value)
	return append(b, l.bytes[1]...)
}

// appendRow writes the values of a row in the order of the statements that enter one.
func (l *literal) appendRow(b []byte, row *Row) []byte {
	b = append(l.appendText(b, row.Consumer), ',')
	b = append(l.appendText(b, row.ID), ',')
	b = append(strconv.AppendInt(b, row.At, 10), ',')
	b = append(l.appendBytes(b, row.Fingerprint), ',')
	if row.Versioned {
		b = strconv.AppendInt(b, row.Version, 10)
	} else {
		b = append(b, `NULL`...)
	}
	return strconv.AppendInt(append(b, ','), row.Nonce, 10)
}

// entering is a statement that enters a row in PostgreSQL. A connection keeps it prepared, because PostgreSQL takes
// longer to plan one than to run it. Its name has the hash of its text: connections can be shared with programs of
// another version.
type entering struct{ text, name, prepare string }

func enteringPostgres(statement string) entering {
	const parameters, converted = `$1, $2, $3, $4, $5, $6`,
		`convert_from(decode($1,'hex'),'UTF8'), convert_from(decode($2,'hex'),'UTF8'), $3, decode($4,'hex'), $5, $6`
	text := strings.Replace(statement, parameters, converted, 1)
	sum := sha256.Sum256([]byte(text))
	name := "spillway_" + hex.EncodeToString(sum[:6])
	return entering{statement, name, `PREPARE ` + name + ` (text, text, bigint, text, bigint, bigint) AS ` + text +
		`; `}
}

var (
	enterPostgres  = enteringPostgres(InPostgres.enter)
	upsertPostgres = enteringPostgres(InPostgres.upsert)
)

func (r *Row) entering() *entering {
	if r.Versioned {
		return &upsertPostgres
	}
	return &enterPostgres
}

// BeginsPostgres begins the transaction of a claim.
const BeginsPostgres = `BEGIN ISOLATION LEVEL READ COMMITTED`

// BeginPostgres begins a transaction, after the end of another if there is one, and enters a row in it, by a statement
// that it prepares or that the connection has. The last of its statements counts the rows: 0 if the key is there
// already, and then Resolve is what remains of Enter.
func BeginPostgres(row Row, another, prepare bool) string {
	b := make([]byte, 0, 1024)
	if another {
		b = append(b, `ROLLBACK; `...)
	}
	b = append(b, BeginsPostgres+`; `...)
	if prepare {
		b = append(append(b, enterPostgres.prepare...), upsertPostgres.prepare...)
	}
	b = append(append(append(b, `EXECUTE `...), row.entering().name...), '(')
	return string(append(literalHex.appendRow(b, &row), ')'))
}

// EnterPostgres enters a row, for drivers that send arguments. Its result is that of BeginPostgres.
func EnterPostgres(row Row) (text string, args []any) {
	return row.entering().text, []any{row.Consumer, row.ID, row.At, row.Fingerprint, row.version(), row.Nonce}
}

// CommitPostgres commits the transaction that entered a row. Where it may have failed or ended, pass doubt: then it
// fails in any other state of affairs, where COMMIT alone would be no error, and, with a division by zero, where the
// row was not entered by the transaction that is open. With outputs, which it records, it also fails where the row is
// gone. It first sets settings that the handler may have changed back, unless there are none.
func CommitPostgres(row Row, outputs []byte, doubt bool, settings *Settings) string {
	if len(outputs) == 0 && !doubt {
		return `COMMIT`
	}
	b := make([]byte, 0, 512+2*len(outputs))
	if doubt {
		b = settings.append(append(b, `SAVEPOINT spillway; `...))
		b = append(b, `SELECT 1/count(*) FROM spillway_keys WHERE `...)
		b = literalPostgres.appendKey(b, &row)
		b = append(b, ` AND xmin = (txid_current() & 4294967295)::text::xid; `...)
	}
	if len(outputs) > 0 {
		b = append(b, `WITH recorded AS (UPDATE spillway_keys SET outputs = `...)
		b = append(literalPostgres.appendBytes(b, outputs), ` WHERE `...)
		b = literalPostgres.appendKey(b, &row)
		b = append(b, ` RETURNING 1) SELECT 1/count(*) FROM recorded; `...)
	}
	return string(append(b, `COMMIT`...))
}

// Settings are those under which PostgreSQL finds our table and lets us use it.
type Settings struct{ SearchPath, Role string }

// SettingsPostgres reads them.
const SettingsPostgres = `SELECT current_setting('search_path'), current_setting('role')`

// Restore is the statement that sets them for the rest of the transaction.
func (s *Settings) Restore() string { return string(s.append(nil)) }

func (s *Settings) append(b []byte) []byte {
	if s == nil {
		return b
	}
	b = literalPostgres.appendText(append(b, `SELECT set_config('role', `...), s.Role)
	b = literalPostgres.appendText(append(b, `, true), set_config('search_path', `...), s.SearchPath)
	return append(b, `, true); `...)
}

func (l *literal) appendKey(b []byte, row *Row) []byte {
	b = l.appendText(append(b, `consumer = `...), row.Consumer)
	return l.appendText(append(b, ` AND id = `...), row.ID)
}

// EnterMySQL enters a row. Where the key is there already it fails as a duplicate, and then Enter or, without a
// version, Resolve is what remains.
func EnterMySQL(row Row) string {
	before, behind, _ := strings.Cut(InMySQL.enter, `?, ?, ?, ?, ?, ?`)
	b := append(make([]byte, 0, 512), before...)
	return string(append(literalMySQL.appendRow(b, &row), behind...))
}
