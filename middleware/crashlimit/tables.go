package crashlimit

import (
	"strconv"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/schema"
)

var tables = []schema.Table{
	{Component: "processes", Name: "spillway_processes", Key: []string{"id"}, Versions: []schema.Version{{
		File:    "0007_crashlimit.sql",
		Columns: []string{"service", "id", "node", "beat_ms", "started_at", "beats", "lost_at"},
	}}},
	{Component: "deliveries", Name: "spillway_deliveries",
		Key: []string{"service", "consumer", "id", "redrives", "delivery"}, Versions: []schema.Version{{
			File:    "0007_crashlimit.sql",
			Columns: []string{"service", "consumer", "id", "redrives", "delivery", "process", "marked_at"},
		}}},
}

// statements are what a store says to its database.
type statements struct {
	register, beat, others, lose, forget, signOff string
	enter, marks, clear, clearOwn, leave, sweep   string
}

// ofMessage has the arguments of Store.key.
const ofMessage = ` WHERE service = ? AND consumer = ? AND id = ? AND redrives = ?`

// sweepAtOnce is how many marks one statement of a sweep removes.
const sweepAtOnce = 500

func statementsFor(db *database.Database) statements {
	enter := ` INTO spillway_deliveries (service, consumer, id, redrives, delivery, process, marked_at) VALUES (?, ?, ?, ?, ?, ?, now_ms())`
	register := `INSERT INTO spillway_processes (service, id, node, beat_ms, started_at, beats) VALUES (?, ?, ?, ?, now_ms(), 0)`
	sweep := ` FROM spillway_deliveries WHERE marked_at < now_ms() - ? LIMIT ` + strconv.Itoa(sweepAtOnce)
	if db.Kind() == database.MySQL {
		enter, sweep, register = `INSERT IGNORE`+enter, `DELETE`+sweep, register+` ON DUPLICATE KEY UPDATE id = id`
	} else {
		const key = `service, consumer, id, redrives, delivery`
		enter, sweep = `INSERT`+enter+` ON CONFLICT DO NOTHING`,
			`DELETE FROM spillway_deliveries WHERE (`+key+`) IN (SELECT `+key+sweep+`)`
		register += ` ON CONFLICT DO NOTHING`
	}
	return statements{
		register: db.Statement(register),
		beat:     db.Statement(`UPDATE spillway_processes SET beats = beats + 1, lost_at = NULL WHERE id = ?`),
		others: db.Statement(`SELECT id, beats, beat_ms, lost_at IS NOT NULL, COALESCE(now_ms() - lost_at, 0) FROM spillway_processes
WHERE service = ? AND id <> ?`),
		lose:    db.Statement(`UPDATE spillway_processes SET lost_at = now_ms() WHERE id = ? AND beats = ? AND lost_at IS NULL`),
		forget:  db.Statement(`DELETE FROM spillway_processes WHERE id = ? AND lost_at IS NOT NULL`),
		signOff: db.Statement(`DELETE FROM spillway_processes WHERE id = ?`),

		enter:    db.Statement(enter),
		marks:    db.Statement(`SELECT delivery, process FROM spillway_deliveries` + ofMessage + ` ORDER BY delivery`),
		clear:    db.Statement(`DELETE FROM spillway_deliveries` + ofMessage + ` AND delivery <= ?`),
		clearOwn: db.Statement(`DELETE FROM spillway_deliveries` + ofMessage + ` AND process = ?`),
		leave:    db.Statement(`DELETE FROM spillway_deliveries WHERE process = ?`),
		sweep:    db.Statement(sweep),
	}
}
