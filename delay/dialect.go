package delay

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/internal/database/schema"
	"github.com/watermill-spillway/spillway/internal/wait"
)

// dialect is all in which one database differs from another.
type dialect struct {
	kind database.Kind
	// query puts the database's own placeholders into a statement.
	query func(string) string
	// now is the database's clock, in microseconds since 1970, and tick how long it may stand still: a delay is as much
	// longer, so that nothing is early on a better clock.
	now  string
	tick time.Duration
	// lock comes first in a transaction that takes, where that must have the right to write before it reads.
	lock string
	// hint and skip surround the choice of rows to take: by which index, and how to pass over those that others are taking.
	// hintKey is the index where rows are chosen by their numbers.
	hint, hintKey, skip string
	// behind is the condition to come behind a place in the order of spillway_delayed_ready, and after what it binds.
	behind string
	after  func(place) []any
	// among is the condition to have one of these numbers, and what it binds.
	among func(seqs []int64) (condition string, args []any)
	// write runs a statement, and transaction several, again and again while others are in the way. So does read, for
	// a statement that does not write.
	write       func(ctx context.Context, db *sql.DB, statement func() error) error
	transaction func(ctx context.Context, db *sql.DB, work func(*sql.Tx) error) error
	read        func(ctx context.Context, statement func() error) error
	// limit asks how large a message can be, and is nil where that does not matter. tooLarge tells whether an error was a
	// refusal for size.
	limit    func(ctx context.Context, db *sql.DB) (int, error)
	tooLarge func(error) bool
	// answered reports whether an error is the server's answer. Nil where limit is nil.
	answered func(error) bool
}

// statements are what a store says to its database. Those that end in IN go on with dialect.among.
type statements struct {
	put, waiting, next, now      string
	choose, page, lockIn         string
	leaseIn, readIn              string
	removeIn, renewIn, releaseIn string
	postponeIn                   string
}

// A row can be taken when ready_at is over: that is due_at at first, the end of the lease when it was taken, and the end of
// the wait when it was refused. So one index answers what can be taken next, whatever holds the others back.
func (d *dialect) statements() statements {
	say := func(statement string) string { return d.query(d.clock(statement)) }
	return statements{
		put: say(`INSERT INTO spillway_delayed (service, topic, id, metadata, payload, size, due_at, ready_at)
VALUES (?, ?, ?, ?, ?, ?, now() + ?, now() + ?)`),
		waiting: say(`SELECT topic, COUNT(*), MIN(due_at) - now() FROM spillway_delayed WHERE service = ? GROUP BY topic
ORDER BY COUNT(*) DESC, topic LIMIT ` + strconv.Itoa(maxWaiting)),
		// What is due later than the relay sleeps is not looked for: the leases of what was deleted lie there.
		next: say(`SELECT ready_at - now(), ready_at, due_at, seq FROM spillway_delayed` + d.hint + ` WHERE service = ? AND ` + d.behind + `
AND ready_at <= now() + ? ORDER BY ready_at, due_at, seq LIMIT 1`),
		now: say(`SELECT now()`),
		choose: say(`SELECT seq, size FROM spillway_delayed` + d.hint + ` WHERE service = ? AND ` + d.behind + ` AND ready_at <= now()
ORDER BY ready_at, due_at, seq LIMIT ?` + d.skip),
		page: say(`SELECT seq, topic, size, ready_at, due_at, ready_at - now() FROM spillway_delayed` + d.hint + ` WHERE service = ? AND ` + d.behind + `
AND ready_at <= now() + ? ORDER BY ready_at, due_at, seq LIMIT ?`),

		// Those with among are completed, and get their placeholders, each time.
		lockIn:  d.clock(`SELECT seq FROM spillway_delayed` + d.hintKey + ` WHERE ready_at <= now() AND `),
		leaseIn: d.clock(`UPDATE spillway_delayed SET token = ?, ready_at = now() + ? WHERE `),
		readIn: d.clock(`SELECT seq, topic, id, metadata, payload, payload IS NOT NULL, failures, now() - due_at
FROM spillway_delayed WHERE token = ? AND `),
		removeIn:   `DELETE FROM spillway_delayed WHERE token = ? AND `,
		renewIn:    d.clock(`UPDATE spillway_delayed SET ready_at = now() + ? WHERE token = ? AND `),
		releaseIn:  `UPDATE spillway_delayed SET token = '', ready_at = due_at WHERE token = ? AND `,
		postponeIn: d.clock(`UPDATE spillway_delayed SET token = '', ready_at = now() + ?, failures = failures + ? WHERE token = ? AND `),
	}
}

// byRow is the condition where a database looks up a comparison of rows in an index, and byColumns where it does not.
const (
	byRow     = `(ready_at, due_at, seq) > (?, ?, ?)`
	byColumns = `ready_at >= ? AND (ready_at > ? OR due_at > ? OR due_at = ? AND seq > ?)`
)

func ofRow(p place) []any     { return []any{p.ready, p.due, p.seq} }
func ofColumns(p place) []any { return []any{p.ready, p.ready, p.due, p.due, p.seq} }

func (d *dialect) clock(statement string) string {
	return strings.ReplaceAll(statement, "now()", d.now)
}

var table = schema.Table{Component: "delayed", Name: "spillway_delayed", Key: []string{"seq"}, Versions: []schema.Version{{
	File:    "0006_delayed.sql",
	Columns: []string{"seq", "service", "topic", "id", "metadata", "payload", "size", "due_at", "ready_at", "token", "failures"},
}}}

// listed writes the numbers into the statement. They are the database's own, and nothing that came with a message.
func listed(seqs []int64) (string, []any) {
	list := appendNumbers([]byte(`seq IN (`), seqs)
	return string(append(list, ')')), nil
}

func appendNumbers(to []byte, seqs []int64) []byte {
	for i, seq := range seqs {
		if i > 0 {
			to = append(to, ',')
		}
		to = strconv.AppendInt(to, seq, 10)
	}
	return to
}

// attempts is how often a statement may be in another's way before its error is returned.
const attempts = 5

// unless returns a dialect.write that runs a statement again when undone says that others are the reason of its error.
func unless(undone func(error) bool) func(context.Context, *sql.DB, func() error) error {
	return func(ctx context.Context, _ *sql.DB, statement func() error) error {
		for attempt := 1; ; attempt++ {
			err := statement()
			if err == nil || attempt == attempts || !undone(err) || !wait.For(ctx, time.Duration(attempt)*5*time.Millisecond) {
				return err
			}
		}
	}
}

// once is a dialect.read where readers wait for nobody.
func once(_ context.Context, statement func() error) error { return statement() }
