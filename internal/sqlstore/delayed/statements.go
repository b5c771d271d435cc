package delayed

import (
	"strconv"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
)

// statements are what a store says to its database. Those that end in IN go on with dialect.among, and are spelled
// then.
type statements struct {
	put, waiting, next, now      string
	choose, page, lockIn         string
	leaseIn, readIn              string
	removeIn, renewIn, releaseIn string
	postponeIn                   string
}

const (
	putInto = `INSERT INTO spillway_delayed (service, topic, id, metadata, payload, size, due_at, ready_at)
`
	putRow = `(?, ?, ?, ?, ?, ?, now_us() + ?, now_us() + ?)`
)

// A row can be taken when ready_at is over: that is due_at at first, the end of the lease when it was taken, and the
// end of the wait when it was refused. So one index answers what can be taken next, whatever holds the others back.
func statementsFor(db *database.Database, d *dialect) statements {
	statement := db.Statement
	return statements{
		put: statement(putInto + `VALUES ` + putRow),
		waiting: statement(`SELECT topic, COUNT(*), MIN(due_at) - now_us() FROM spillway_delayed WHERE service = ? GROUP BY topic
ORDER BY COUNT(*) DESC, topic LIMIT ` + strconv.Itoa(maxWaiting)),
		// What is due later than the relay sleeps is not looked for: the leases of what was deleted lie there.
		next: statement(`SELECT ready_at - now_us(), ready_at, due_at, seq FROM spillway_delayed` + d.hint + ` WHERE service = ? AND ` + d.behind + `
AND ready_at <= now_us() + ? ORDER BY ready_at, due_at, seq LIMIT 1`),
		now: statement(`SELECT now_us()`),
		choose: statement(`SELECT seq, size FROM spillway_delayed` + d.hint + ` WHERE service = ? AND ` + d.behind + ` AND ready_at <= now_us()
ORDER BY ready_at, due_at, seq LIMIT ?` + db.SkipLocked()),
		page: statement(`SELECT seq, topic, size, ready_at, due_at, ready_at - now_us() FROM spillway_delayed` + d.hint + ` WHERE service = ? AND ` + d.behind + `
AND ready_at <= now_us() + ? ORDER BY ready_at, due_at, seq LIMIT ?`),

		lockIn:  `SELECT seq FROM spillway_delayed` + d.hintKey + ` WHERE ready_at <= now_us() AND `,
		leaseIn: `UPDATE spillway_delayed SET token = ?, ready_at = now_us() + ? WHERE `,
		readIn: `SELECT seq, topic, id, metadata, payload, payload IS NOT NULL, failures, now_us() - due_at
FROM spillway_delayed WHERE token = ? AND `,
		removeIn:   `DELETE FROM spillway_delayed WHERE token = ? AND `,
		renewIn:    `UPDATE spillway_delayed SET ready_at = now_us() + ? WHERE token = ? AND `,
		releaseIn:  `UPDATE spillway_delayed SET token = '', ready_at = due_at WHERE token = ? AND `,
		postponeIn: `UPDATE spillway_delayed SET token = '', ready_at = now_us() + ?, failures = failures + ? WHERE token = ? AND `,
	}
}

var table = schema.Table{Component: "delayed", Name: "spillway_delayed", Key: []string{"seq"},
	Versions: []schema.Version{{
		File: "0006_delayed.sql",
		Columns: []string{"seq", "service", "topic", "id", "metadata", "payload", "size", "due_at", "ready_at", "token",
			"failures"},
	}}}
