package sequence

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/database"
)

// maxWrite bounds every statement, the wait for others included.
const maxWrite = 30 * time.Second

// Store is the table of parked messages of a service. It is safe for concurrent use, by any number of processes.
type Store struct {
	db         *database.Database
	service    string
	statements statements
}

// NewStore makes or upgrades the table.
func NewStore(ctx context.Context, db *sql.DB, service string) (*Store, error) {
	on, err := database.Open(ctx, "sequence: NewStore", db, service, table)
	if err != nil {
		return nil, err
	}
	return &Store{db: on, service: service, statements: statementsFor(on)}, nil
}

// statements are in a database's own SQL.
type statements struct {
	park, again, hold, remove string
	heads, lanes              string
}

// settledKey is true of a row whose message is settled: a hold that was left over does not count.
const settledKey = `EXISTS (SELECT 1 FROM spillway_keys k WHERE k.consumer = p.consumer AND k.id = p.key_id AND (k.expires_at IS NULL
OR k.expires_at = 0 AND k.settled_source = p.source AND k.settled_position >= p.position AND k.settled_redrives >= p.redrives))`

func statementsFor(db *database.Database) statements {
	const message = `WHERE source = ? AND position = ? AND fingerprint = ?`
	nothing := ` ON CONFLICT DO NOTHING`
	if db.Kind() == database.MySQL {
		nothing = ` ON DUPLICATE KEY UPDATE held = held` // IGNORE would ignore other errors too
	}
	return statements{
		park: db.Statement(`INSERT INTO spillway_parked (` + columns + `)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, now_us() + ?, ?, ?, ?, ?, ?, ?, ?, ?)` + nothing),
		again:  db.Statement(`UPDATE spillway_parked SET due_at = now_us() + ?, id = ?, metadata = ?, payload = ? ` + message),
		hold:   db.Statement(`UPDATE spillway_parked SET held = ? ` + message),
		remove: db.Statement(`DELETE FROM spillway_parked ` + message),
		heads: db.Statement(`SELECT p.seq, p.lane, p.position, p.fingerprint, p.redrives, p.due_at - now_us(), CASE WHEN p.held = 0 THEN 0
WHEN ` + settledKey + ` THEN 0 ELSE 1 END, p.sent_at, p.consumer, p.key_id, p.record_key, p.id, p.metadata, p.payload, p.payload IS NOT NULL
FROM spillway_parked p WHERE p.source = ? AND p.lane = ? ORDER BY p.seq LIMIT ?`),
		lanes: db.Statement(`SELECT p.lane, p.due_at - now_us() FROM spillway_parked p
JOIN (SELECT MIN(seq) AS seq FROM spillway_parked WHERE source = ? GROUP BY lane) first ON first.seq = p.seq`),
	}
}

// Park writes a row, unless there is one of this message.
func (s *Store) Park(ctx context.Context, of Source, row *Row, wait time.Duration) error {
	size := row.size()
	if largest := s.db.Largest(); largest > 0 && size > largest { // the server would hang up
		return fmt.Errorf("%w: %d bytes, and the server takes at most %d", classify.ErrTooLarge, size, largest)
	}
	err := s.exec(ctx, s.statements.park, row.args(s.db, s.service, of, of.hash(s.service), wait)...)
	if s.db.TooLarge(err, size) {
		err = fmt.Errorf("%w: %d bytes: %w", classify.ErrTooLarge, size, err)
	}
	return err
}

// Again lets a row wait on, with what is known of its message by now.
func (s *Store) Again(ctx context.Context, of Source, row *Row, wait time.Duration) error {
	args := row.args(s.db, s.service, of, "", wait)
	n := len(args)
	return s.exec(ctx, s.statements.again, append([]any{wait.Microseconds(), args[n-3], args[n-2], args[n-1]},
		s.message(of, row)...)...)
}

// Hold stops a sequence at a row until a person releases it.
func (s *Store) Hold(ctx context.Context, of Source, row *Row, held bool) error {
	is := 0
	if held {
		is = 1
	}
	return s.exec(ctx, s.statements.hold, append([]any{is}, s.message(of, row)...)...)
}

// Delete removes the row of a message.
func (s *Store) Delete(ctx context.Context, of Source, row *Row) error {
	return s.exec(ctx, s.statements.remove, s.message(of, row)...)
}

func (s *Store) message(of Source, row *Row) []any {
	return []any{[]byte(of.hash(s.service)), row.Position, row.Fingerprint}
}

func (s *Store) exec(ctx context.Context, statement string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	_, err := s.db.Exec(ctx, statement, args...)
	return err
}

// Heads returns the first rows of a sequence, at most n.
func (s *Store) Heads(ctx context.Context, of Source, lane []byte, n int) (rows []*Row, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	err = s.db.Query(ctx, func() { rows = nil }, func(scan *sql.Rows) error {
		row := new(Row)
		var consumer, keyID, id, metadata, payload []byte
		var due, held, sent int64
		var hasPayload bool
		if err := scan.Scan(&row.seq, &row.Lane, &row.Position, &row.Fingerprint, &row.Redrives, &due, &held, &sent, &consumer,
			&keyID, &row.RecordKey, &id, &metadata, &payload, &hasPayload); err != nil {
			return err
		}
		row.Lane = notNil(row.Lane) // some drivers read an empty value as nil
		if row.RecordKey == nil && len(row.Lane) != alone {
			row.RecordKey = []byte{}
		}
		row.Key = Key{Consumer: string(consumer), ID: string(keyID)}
		row.Due, row.Held, row.SentAt = time.Now().Add(microseconds(due)), held != 0, time.UnixMicro(sent)
		rows = append(rows, row)
		return row.decode(id, metadata, payload, hasPayload)
	}, s.statements.heads, []byte(of.hash(s.service)), notNil(lane), n)
	return rows, err
}

// Waiting is a sequence with parked messages.
type Waiting struct {
	Lane []byte
	Due  time.Time // of the first
}

// Load returns the sequences of a source that have parked messages.
func (s *Store) Load(ctx context.Context, of Source) (all []Waiting, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	err = s.db.QueryPlanned(ctx, func() { all = nil }, func(rows *sql.Rows) error {
		var w Waiting
		var due int64
		err := rows.Scan(&w.Lane, &due)
		w.Lane, w.Due = notNil(w.Lane), time.Now().Add(microseconds(due))
		all = append(all, w)
		return err
	}, s.statements.lanes, []byte(of.hash(s.service)))
	return all, err
}

// microseconds bounds what the database says: its clock may have jumped.
func microseconds(n int64) time.Duration {
	const most = int64(10 * 366 * 24 * time.Hour / time.Microsecond)
	return time.Duration(max(-most, min(n, most))) * time.Microsecond
}
