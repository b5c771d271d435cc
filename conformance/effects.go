package conformance

import (
	"database/sql"
	"encoding/hex"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "modernc.org/sqlite" // the effects of every test, unless the messages are in a database themselves

	"github.com/watermill-spillway/spillway/idempotency"
)

// openEffects opens the database with the effects. Several processes may do so; on SQLite, who writes holds the others
// up.
func (b *bench) openEffects() {
	b.Helper()
	if b.target.Database != nil {
		b.db, b.keys = b.target.Database(b.T)
	} else {
		b.db = b.openFile(b.path)
		keys, err := idempotency.NewStore(b.Context(), b.db, "")
		if err != nil {
			b.Fatal(err)
		}
		b.keys = keys
	}
	// Ids may hold any bytes, and are kept in a form that every database keeps, and that needs no quoting.
	if _, err := b.db.Exec(`CREATE TABLE IF NOT EXISTS ` + b.table() + ` (id TEXT NOT NULL)`); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) openFile(path string) *sql.DB {
	b.Helper()
	db, err := sql.Open("sqlite",
		"file:"+path+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(60000)&_pragma=synchronous(NORMAL)")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	return db
}

// table is the effects table of this bench alone.
func (b *bench) table() string {
	return "effects_" + hex.EncodeToString([]byte(b.topic)[len("conformance-"):])
}

// apply writes the message's effect in the receiver's transaction, or in none where there is no receiver.
func (b *bench) apply(msg *message.Message) error {
	insert := fmt.Sprintf(`INSERT INTO %s (id) VALUES ('%x')`, b.table(), msg.UUID)
	if tx := idempotency.Tx(msg.Context()); tx != nil {
		_, err := tx.Exec(insert)
		return err
	}
	_, err := b.db.Exec(insert)
	return err
}

// effects returns how often each id took effect.
func (b *bench) effects() map[string]int {
	b.Helper()
	rows, err := b.db.Query(`SELECT id, count(*) FROM ` + b.table() + ` GROUP BY id`)
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	counts := map[string]int{}
	for rows.Next() {
		var encoded string
		var n int
		if err := rows.Scan(&encoded, &n); err != nil {
			b.Fatal(err)
		}
		id, err := hex.DecodeString(encoded)
		if err != nil {
			b.Fatal(err)
		}
		counts[string(id)] = n
	}
	if err := rows.Err(); err != nil {
		b.Fatal(err)
	}
	return counts
}
