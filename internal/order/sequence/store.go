package sequence

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
)

// Store is the table of parked messages of a service. It is safe for concurrent use, by any number of processes.
type Store struct {
	db      *database.Database
	service string
	// joins makes the store read and write in the transaction in which a subscriber consumes the message, if that is of
	// the same *sql.DB. What is parked on another connection would stay when the message's transaction is rolled back.
	joins bool
}

// NewStore makes or upgrades the table.
func NewStore(ctx context.Context, db *sql.DB, service string) (*Store, error) {
	on, err := database.Open(ctx, "sequence: NewStore", db, service, keytable.Parked)
	if err != nil {
		return nil, err
	}
	return &Store{db: on, service: service}, nil
}

// settledKey is true of a row whose message is settled: a hold that was left over does not count.
const settledKey = `EXISTS (SELECT 1 FROM spillway_keys k WHERE k.consumer = p.consumer AND k.id = p.key_id AND (k.expires_at IS NULL
OR k.expires_at = 0 AND k.settled_source = p.source AND k.settled_position >= p.position AND k.settled_redrives >= p.redrives))`

const (
	// What a person decided is done at once, and a hold does not stand in its way.
	dueIn  = `CASE WHEN p.decision > 0 THEN 0 ELSE p.due_at - now_us() END`
	isHeld = `CASE WHEN p.held = 0 OR p.decision > 0 THEN 0 WHEN ` + settledKey + ` THEN 0 ELSE 1 END`
)

// ofMessage names a row by what Store.message returns.
const ofMessage = ` WHERE source = ? AND position = ? AND fingerprint = ?`

// Park writes a row, unless there is one of this message. If the row's number is taken, nothing is parked: the error is
// an outage of the store.
func (s *Store) Park(ctx context.Context, of parked.Source, row *Row, wait time.Duration) error {
	once := ` ON CONFLICT (source, position, fingerprint) DO NOTHING`
	if s.db.Kind() == database.MySQL {
		once = `` // no clause can name an index
	}
	err := s.write(ctx, `INSERT INTO spillway_parked (`+columns+`)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, now_us() + ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`+once, row, row.args(s.db, s.service, of, of.Hash(s.service), wait))
	err = s.db.OwnKey(err, keytable.Parked)
	var own *database.OwnKeyError
	if s.db.Kind() == database.MySQL && s.db.IsTaken(err) && !errors.As(err, &own) {
		return nil // it is parked
	}
	return err
}

// write refuses what the database does not take for its size.
func (s *Store) write(ctx context.Context, statement string, row *Row, args []any) error {
	size := row.size()
	if largest := s.db.Largest(); largest > 0 && size > largest { // the server would hang up
		return fmt.Errorf("%w: %d bytes, and the server takes at most %d", classify.ErrTooLarge, size, largest)
	}
	err := s.exec(ctx, statement, args...)
	if s.db.TooLarge(err, size) {
		err = fmt.Errorf("%w: %d bytes: %w", classify.ErrTooLarge, size, err)
	}
	return err
}

// Again lets a row wait on, with what is known of its message by now, or stand if it is held.
func (s *Store) Again(ctx context.Context, of parked.Source, row *Row, wait time.Duration) error {
	args := row.args(s.db, s.service, of, "", wait)
	args = append([]any{wait.Microseconds(), row.heldNumber()}, args[len(args)-4:]...)
	// a skip or discard that a person decided meanwhile stays
	return s.write(ctx, `UPDATE spillway_parked SET due_at = now_us() + ?, held = ?,
decision = CASE WHEN decision = 1 THEN 0 ELSE decision END, bytes = ?, id = ?, metadata = ?, payload = ?`+ofMessage, row,
		append(args, s.message(of, row)...))
}

// Delete removes the row of a message.
func (s *Store) Delete(ctx context.Context, of parked.Source, row *Row) error {
	return s.exec(ctx, `DELETE FROM spillway_parked`+ofMessage, s.message(of, row)...)
}

func (s *Store) message(of parked.Source, row *Row) []any {
	return []any{[]byte(of.Hash(s.service)), row.Position, row.Fingerprint}
}

// Heads returns the first rows of a sequence, at most n.
func (s *Store) Heads(ctx context.Context, of parked.Source, lane []byte, n int) (rows []*Row, err error) {
	err = s.query(ctx, s.db.Query, func() { rows = nil }, func(scan *sql.Rows) error {
		row := new(Row)
		var consumer, keyID, by, why, id, metadata, payload []byte
		var due, held, sent int64
		var hasPayload bool
		if err := scan.Scan(&row.seq, &row.Lane, &row.Position, &row.Fingerprint, &row.Redrives, &due, &held, &sent,
			&consumer,
			&keyID, &row.RecordKey, &row.Decision, &row.DecidedAt, &by, &why, &id, &metadata, &payload, &hasPayload); err != nil {
			return err
		}
		row.Lane = parked.NotNil(row.Lane) // some drivers read an empty value as nil
		if row.RecordKey == nil && len(row.Lane) != parked.Alone {
			row.RecordKey = []byte{}
		}
		row.Key = keytable.Key{Consumer: string(consumer), ID: string(keyID)}
		row.Due, row.Held, row.SentAt = time.Now().Add(database.Microseconds(due)), held != 0, time.UnixMicro(sent)
		row.By, row.Why = string(by), string(why)
		rows = append(rows, row)
		var err error
		row.Msg, err = metadatacodec.Message(id, metadata, payload, hasPayload)
		return err
	}, `SELECT p.seq, p.lane, p.position, p.fingerprint, p.redrives, `+dueIn+`, `+isHeld+`, p.sent_at, p.consumer,
p.key_id, p.record_key, p.decision, p.decided_at, p.decided_by, p.decided_why, p.id, p.metadata, p.payload, p.payload IS NOT NULL
FROM spillway_parked p WHERE p.source = ? AND p.lane = ? ORDER BY p.seq LIMIT ?`, []byte(of.Hash(s.service)), parked.NotNil(lane), n)
	return rows, err
}

// Waiting is a sequence with parked messages.
type Waiting struct {
	Lane []byte
	Due  time.Time // of the first
	load
}

// load is what counts of a limit.
type load struct {
	messages int
	bytes    int64
}

// Load returns the sequences of a source that have parked messages.
func (s *Store) Load(ctx context.Context, of parked.Source) (all []Waiting, err error) {
	err = s.query(ctx, s.db.QueryPlanned, func() { all = nil }, func(rows *sql.Rows) error {
		var w Waiting
		var due int64
		err := rows.Scan(&w.Lane, &due, &w.messages, &w.bytes)
		w.Lane, w.Due = parked.NotNil(w.Lane), time.Now().Add(database.Microseconds(due))
		all = append(all, w)
		return err
	}, `SELECT p.lane, `+dueIn+`, first.n, first.bytes FROM spillway_parked p JOIN (SELECT MIN(seq) AS seq, COUNT(*) AS n,
SUM(bytes) AS bytes FROM spillway_parked WHERE source = ? GROUP BY lane) first ON first.seq = p.seq`, []byte(of.Hash(s.service)))
	return all, err
}

// Decided returns the sequences of a source for which a person has decided something.
func (s *Store) Decided(ctx context.Context, of parked.Source) (lanes [][]byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, parked.MaxWrite)
	defer cancel()
	err = s.db.Query(ctx, func() { lanes = nil }, database.Into(&lanes),
		s.db.Statement(`SELECT DISTINCT lane FROM spillway_parked WHERE source = ? AND decision > 0`), []byte(of.Hash(s.service)))
	return lanes, err
}

// Row is a parked message.
type Row struct {
	seq         int64
	Lane        []byte
	Position    int64
	Fingerprint []byte
	Redrives    int64
	SentAt      time.Time
	Key         keytable.Key
	RecordKey   []byte
	Msg         *message.Message
	Due         time.Time       // by this process's clock
	Held        bool            // until a person decides
	Decision    parked.Decision // of a person
	By, Why     string          // who decided, and for what reason
	DecidedAt   int64           // microseconds since 1970, of the latest decision; 0 if there was none
}

// FingerprintOf tells a message from another at the same position of a topic that was made anew.
func FingerprintOf(msg *message.Message) []byte {
	h := sha256.New()
	_, _ = h.Write(metadatacodec.Append(nil, msg.UUID))
	_, _ = h.Write(msg.Payload)
	return h.Sum(nil)
}

// wholeOf tells a message from another of a source without offsets. Two that are alike in all of this are one message
// to the receiver, too.
func wholeOf(msg *message.Message) []byte {
	b := metadatacodec.Append(nil, msg.UUID)
	for _, name := range slices.Sorted(maps.Keys(msg.Metadata)) {
		b = metadatacodec.Append(metadatacodec.Append(b, name), msg.Metadata[name])
	}
	h := sha256.New()
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
	_, _ = h.Write(b)
	_, _ = h.Write(msg.Payload)
	return h.Sum(nil)
}

func (r *Row) size() int { return len(r.Msg.Payload) + len(r.Msg.UUID) + len(r.RecordKey) + 1024 }

func (r *Row) args(db *database.Database, service string, of parked.Source, source string, wait time.Duration) []any {
	var key any // see metadatacodec.Payload
	if r.RecordKey != nil {
		key = r.RecordKey
	}
	return []any{[]byte(service), []byte(of.Group), []byte(of.Topic), of.Partition, []byte(source), parked.NotNil(r.Lane),
		r.Position, r.Fingerprint, r.Redrives, wait.Microseconds(), r.heldNumber(), boundedtext.Moment(r.SentAt).UnixMicro(),
		db.Text(database.Column(r.Key.Consumer)), db.Text(database.Column(r.Key.ID)), key, r.size(), []byte(r.Msg.UUID),
		metadatacodec.Metadata(r.Msg.Metadata), metadatacodec.Payload(r.Msg.Payload)}
}

func (r *Row) heldNumber() int {
	if r.Held {
		return 1
	}
	return 0
}

// place is where the message stands, for its key.
func (r *Row) place(source string) keytable.Place {
	return keytable.Place{Source: source, Position: r.Position, Redrives: r.Redrives}
}

// columns of a row that is written, in the order of Row.args.
const columns = `service, members, topic, part, source, lane, position, fingerprint, redrives, due_at, held, sent_at, consumer, key_id,
record_key, bytes, id, metadata, payload`

// Listed returns the Listed of a channel that parks its messages in s.
func (s *Store) Listed() parked.Listed { return parked.ListedIn(s.db.DB(), s.service) }

// Joins reports whether the store joins the transactions of a subscriber on db.
func (s *Store) Joins(db *sql.DB) bool { return s.joins && s.db.DB() == db }

// joined runs work in the transaction of ctx. It reports false if there is none.
func (s *Store) joined(ctx context.Context, work func(*sql.Tx) error) (bool, error) {
	if !s.joins {
		return false, nil
	}
	return chain.WriteJoined(ctx, s.db.DB(), work)
}

func (s *Store) exec(ctx context.Context, statement string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, parked.MaxWrite)
	defer cancel()
	statement = s.db.Statement(statement)
	joined, err := s.joined(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	})
	if !joined {
		_, err = s.db.Exec(ctx, statement, args...)
	}
	return err
}

// query is Query of the database, or QueryPlanned.
func (s *Store) query(ctx context.Context, of query, reset func(), scan func(*sql.Rows) error, statement string,
	args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, parked.MaxWrite)
	defer cancel()
	statement = s.db.Statement(statement)
	joined, err := s.joined(ctx, func(tx *sql.Tx) error {
		reset()
		return database.Each(ctx, tx, scan, statement, args...)
	})
	if !joined {
		err = of(ctx, reset, scan, statement, args...)
	}
	return err
}

type query func(ctx context.Context, reset func(), scan func(*sql.Rows) error, statement string, args ...any) error
