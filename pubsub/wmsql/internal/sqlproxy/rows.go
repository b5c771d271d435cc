package sqlproxy

import (
	"context"
	"database/sql/driver"
	"io"
	"strings"
)

// rows are the driver's, whose late errors count too: a query can fail at its thousandth row.
type rows struct {
	driver.Rows
	c       *Conn
	ctx     context.Context // of the query
	release func()
}

func (r *rows) Next(to []driver.Value) error {
	return r.read(call{rows: r.Rows, row: to}, func(c *call, _ driver.Conn) error { return c.rows.Next(c.row) })
}

func (r *rows) read(in call, work work) error {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if r.c.over != nil {
		return r.c.over
	}
	_, err := r.c.useLocked(r.ctx, in, work)
	if err == io.EOF {
		return err
	}
	return r.c.observeLocked(r.ctx, err)
}

// Close reads what is left, about which some drivers report errors. If the owner has ended the Conn it must not: the
// connection will be closed.
func (r *rows) Close() error {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	defer r.release()
	if r.c.over != nil {
		return nil
	}
	r.c.reading--
	_, err := r.c.useLocked(r.ctx, call{rows: r.Rows}, func(c *call, _ driver.Conn) error { return c.rows.Close() })
	return r.c.observeLocked(r.ctx, err)
}

// Plain reports whether a statement begins with one of the given words (upper case) and has no other statement behind
// it. It is false, and the caller must find out by other means, for a statement that
//
//   - begins with a comment,
//   - has a semicolon anywhere,
//   - is one word, which may be the name of a prepared statement,
//   - names set_config, with which a query of PostgreSQL changes settings.
func Plain(statement string, words ...string) bool {
	statement = strings.TrimLeft(statement, " \t\r\n")
	end := strings.IndexFunc(statement, func(r rune) bool { return (r|0x20) < 'a' || (r|0x20) > 'z' })
	if end <= 0 || !strings.ContainsRune(" \t\r\n(/*\"'`", rune(statement[end])) ||
		strings.IndexByte(statement, ';') >= 0 || names(statement, "set_config") {
		return false
	}
	for _, word := range words {
		if strings.EqualFold(statement[:end], word) {
			return true
		}
	}
	return false
}

// names reports whether a word is in a statement, in upper or lower case. It allocates nothing, because it reads every
// statement.
func names(statement, word string) bool {
	for i := 0; i+len(word) <= len(statement); i++ {
		if statement[i]|0x20 == word[0] && strings.EqualFold(statement[i:i+len(word)], word) {
			return true
		}
	}
	return false
}
