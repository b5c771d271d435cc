package backlog

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/lab/internal/harness"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

const (
	originals  = 10_000 // letters that are put, and then copied
	copyAtOnce = 500_000
)

// dialect is what the servers say each in its own way.
type dialect struct {
	identity, id string // of the copy of a letter, l, whose seq is ? greater
	// indexes returns for each index but the primary key the statements that drop it and make it again.
	indexes string
	after   []string
}

var dialects = map[string]dialect{
	"postgres": {
		identity: `sha256(identity || ?::bigint::text::bytea)`, id: `('id-' || (seq + ?::bigint))::bytea`,
		indexes: `SELECT CASE WHEN indexdef LIKE 'CREATE UNIQUE%' THEN 'ALTER TABLE ' || tablename || ' DROP CONSTRAINT ' || indexname ELSE 'DROP INDEX ' || indexname END, indexdef
FROM pg_indexes WHERE schemaname = current_schema() AND tablename = 'spillway_dead_letters' AND indexname NOT LIKE '%_pkey'`,
		after: []string{`SELECT setval(pg_get_serial_sequence('spillway_dead_letters', 'seq'), (SELECT MAX(seq) FROM spillway_dead_letters))`, `VACUUM ANALYZE`},
	},
	"mariadb": {
		identity: `UNHEX(SHA2(CONCAT(identity, ?), 256))`, id: `CONCAT('id-', seq + ?)`,
		indexes: `SELECT CONCAT('DROP INDEX ', INDEX_NAME, ' ON spillway_dead_letters'), CONCAT('CREATE ', IF(NON_UNIQUE, '', 'UNIQUE '), 'INDEX ', INDEX_NAME, ' ON spillway_dead_letters (',
	GROUP_CONCAT(COLUMN_NAME, IF(SUB_PART IS NULL, '', CONCAT('(', SUB_PART, ')')) ORDER BY SEQ_IN_INDEX), ')')
FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'spillway_dead_letters' AND INDEX_NAME <> 'PRIMARY' GROUP BY INDEX_NAME, NON_UNIQUE`,
		after: []string{`ANALYZE TABLE spillway_dead_letters`, `ANALYZE TABLE spillway_letter_bodies`},
	},
}

// Copy puts some letters and copies them within the server until so many are there, with bodies of about 200 bytes: ten
// million letters in minutes. Indexes are made at the end, and the numbers of causes are counted anew.
func Copy(ctx context.Context, d *harness.Database, store *letters.Store, rows int) error {
	say, ok := dialects[d.Name]
	if !ok {
		return fmt.Errorf("copy letters: on postgres or mariadb, not on %s", d.Name)
	}
	if err := Fill(ctx, store, min(rows, originals)); err != nil {
		return err
	}
	db, err := database.Detect(ctx, d.DB)
	if err != nil {
		return err
	}
	var drop, make []string
	err = db.Query(ctx, func() { drop, make = nil, nil }, func(rows *sql.Rows) error {
		var d, m string
		err := rows.Scan(&d, &m)
		drop, make = append(drop, d), append(make, m)
		return err
	}, say.indexes)
	run := func(statements ...string) {
		for _, statement := range statements {
			if err == nil {
				if _, err = d.ExecContext(ctx, statement); err != nil {
					err = fmt.Errorf("%s: %w", statement, err)
				}
			}
		}
	}
	run(drop...)
	for err == nil {
		var there, first, last int64
		if err = d.QueryRowContext(ctx, `SELECT COUNT(*), MIN(seq), MAX(seq) FROM spillway_dead_letters`).Scan(&there,
			&first,
			&last); err != nil {
			break
		}
		missing := min(int64(rows)-there, copyAtOnce)
		if missing <= 0 {
			break
		}
		err = copyLetters(ctx, db, say, first, min(first+missing, last+1), last-first+1)
	}
	run(make...)
	run(`DELETE FROM spillway_letter_counts`)
	run(recount)
	run(say.after...)
	return err
}

const recount = `INSERT INTO spillway_letter_counts (service, cause, slot, waiting, redriven, succeeded, failed_again, quarantined, refused, discarded, erased,
	arrived, first_failed_at, last_failed_at, last_seq, minute, in_minute, minute_before)
SELECT service, cause, 1, COUNT(*), 0, 0, 0, 0, 0, 0, 0, COUNT(*), MIN(first_failed_at), MAX(last_failed_at), MAX(seq), 0, 0, 0
FROM spillway_dead_letters GROUP BY service, cause`

// copyLetters copies the letters from a seq to before another, with their seqs greater by the offset.
func copyLetters(ctx context.Context, db *database.Database, say dialect, from, before, offset int64) error {
	const same = `dead_letter_topic, origin_topic, handler, class, reason, type, stack_hash, description, stored_at, service, cause, seal_key, arrived_redrive_id, arrived_letter`
	_, err := db.Exec(ctx, db.Statement(`INSERT INTO spillway_dead_letters (seq, identity, id, first_failed_at, last_failed_at, size, `+same+`)
SELECT seq + ?, `+say.identity+`, `+say.id+`, first_failed_at + ?, last_failed_at + ?, 200, `+same+`
FROM spillway_dead_letters WHERE seq >= ? AND seq < ?`), offset, offset, offset, offset*1_000_000, offset*1_000_000, from, before)
	if err != nil {
		return err
	}
	metadata := metadatacodec.Metadata(message.Metadata{"tenant": "tenant-1", "x-original-topic": "orders-1",
		"x-failure-reason": strings.Repeat("x", 100)})
	_, err = db.Exec(ctx, db.Statement(`INSERT INTO spillway_letter_bodies (body, metadata, payload)
SELECT seq + ?, ?, ? FROM spillway_dead_letters WHERE seq >= ? AND seq < ?`), offset, metadata, []byte(`{"order":1}`), from, before)
	return err
}
