package keytable

import (
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

// EnterMySQL enters a row. Where the key is there already it fails as a duplicate, and then Enter or, without a
// version, Resolve is what remains.
func EnterMySQL(row Row) string {
	before, behind, _ := strings.Cut(InMySQL.enter, `?, ?, ?, ?, ?, ?`)
	b := append(make([]byte, 0, 512), before...)
	return string(append(literalMySQL.appendRow(b, &row), behind...))
}
