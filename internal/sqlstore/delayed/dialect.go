package delayed

import (
	"strconv"
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// dialect is in what the statements differ from database to database.
type dialect struct {
	// tick is how long the database's clock may stand still: a delay is as much longer, so that nothing is early on a
	// better clock.
	tick time.Duration
	// lock comes first in a transaction that takes, if it must have the right to write before it reads.
	lock string
	// hint is by which index rows are chosen, and hintKey the same for rows that are chosen by their numbers.
	hint, hintKey string
	// behind is the condition to come behind a place in the order of spillway_delayed_ready, and after is what it
	// binds.
	behind string
	after  func(place) []any
	// among is the condition to have one of these numbers, and what it binds.
	among func(seqs []int64) (condition string, args []any)
}

var dialects = map[database.Kind]*dialect{
	database.Postgres: {behind: byRow, after: ofRow, among: inArray},
	database.MySQL: {
		// Otherwise, if many rows are due, the server would sort, and lock, all of them.
		hint:    ` FORCE INDEX (spillway_delayed_ready)`,
		hintKey: ` FORCE INDEX (PRIMARY)`,
		behind:  byColumns, after: ofColumns, among: listed,
	},
	database.SQLite: {
		tick: time.Millisecond,
		// A transaction that has read is refused when it wants to write and another process has written meanwhile.
		lock:   `UPDATE spillway_delayed SET token = token WHERE seq = 0`,
		behind: byRow, after: ofRow, among: listed,
	},
}

// byRow is the condition for databases that look up a comparison of rows in an index, and byColumns for those that do
// not.
const (
	byRow     = `(ready_at, due_at, seq) > (?, ?, ?)`
	byColumns = `ready_at >= ? AND (ready_at > ? OR due_at > ? OR due_at = ? AND seq > ?)`
)

func ofRow(p place) []any     { return []any{p.ready, p.due, p.seq} }
func ofColumns(p place) []any { return []any{p.ready, p.ready, p.due, p.due, p.seq} }

// listed writes the numbers into the statement. They are the database's own: none of them came with a message.
func listed(seqs []int64) (string, []any) {
	list := appendNumbers([]byte(`seq IN (`), seqs)
	return string(append(list, ')')), nil
}

// inArray binds all numbers as one array: drivers of PostgreSQL keep prepared statements by their text.
func inArray(seqs []int64) (string, []any) {
	list := appendNumbers([]byte{'{'}, seqs)
	return `seq = ANY (CAST(CAST(? AS text) AS bigint[]))`, []any{string(append(list, '}'))}
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
