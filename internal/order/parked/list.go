package parked

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// Parked is a sequence with parked messages, for people.
type Parked struct {
	Seq       int64     `json:"seq"`      // of the first message: it names the sequence to Decide
	Consumer  string    `json:"consumer"` // of the first message: service and handler
	Group     string    `json:"group"`
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Key       *string   `json:"key"` // the head of it; nil without one
	Messages  int       `json:"messages"`
	First     string    `json:"first"`                // the id of the first message
	Position  int64     `json:"position"`             // its offset
	SentAt    time.Time `json:"sent_at,omitzero"`     // by its producer or broker, if that is known
	Due       time.Time `json:"due_at"`               // when it is tried again
	Held      bool      `json:"held"`                 // until a person decides
	Late      bool      `json:"late"`                 // it is due or decided, for longer than a minute
	Bytes     int64     `json:"bytes"`                // of all messages, as limits count them
	Decided   string    `json:"decided,omitempty"`    // by a person: release, skip or discard
	By        string    `json:"decided_by,omitempty"` // who did
	Why       string    `json:"reason,omitempty"`     // and for what reason
	DecidedAt time.Time `json:"decided_at,omitzero"`

	source, lane []byte
	id           string
}

// late is how long a message may be due and not begun until List calls it late.
const late = time.Minute

// List returns the sequences of a service, at most limit, those with the most messages first. db need not have the
// table.
func List(ctx context.Context, db *sql.DB, service string, limit int) (all []Parked, err error) {
	ctx, cancel := context.WithTimeout(ctx, MaxWrite)
	defer cancel()
	on, err := within(ctx, db)
	if on == nil {
		return nil, err
	}
	return list(ctx, on, service, byMessages, limit)
}

// firsts are the first messages of the sequences of a service.
const firsts = `FROM spillway_parked p JOIN (SELECT MIN(seq) AS seq, COUNT(*) AS n, SUM(bytes) AS bytes FROM spillway_parked
WHERE service = ? GROUP BY source, lane) first ON first.seq = p.seq`

const byMessages = ` ORDER BY first.n DESC, p.seq`

// list returns the sequences whose first messages the end of a query chooses, at most limit.
func list(ctx context.Context, on *database.Database, service, end string, limit int, args ...any) (all []Parked,
	err error) {
	err = on.QueryPlanned(ctx, func() { all = nil }, func(rows *sql.Rows) error {
		var p Parked
		var consumer, group, topic, id, by, why []byte
		var due, sent, held, decided, ago int64
		var decision Decision
		if err := rows.Scan(&p.Seq, &p.source, &p.lane, &consumer, &group, &topic, &p.Partition, &p.Messages, &id,
			&p.Position, &sent, &due, &held, &decision, &decided, &ago, &by, &why, &p.Bytes); err != nil {
			return err
		}
		p.lane, p.id = NotNil(p.lane), string(id)
		p.Consumer, p.Group, p.Topic, p.First = shown(consumer), shown(group), shown(topic), shown(id)
		p.Key = keyShown(p.lane)
		wait := database.Microseconds(due)
		p.SentAt, p.Due = time.UnixMicro(sent).UTC(), time.Now().Add(wait).UTC()
		p.Held, p.Late = held != 0, held == 0 && wait < -late
		if decision != Undecided {
			p.Decided, p.By, p.Why, p.DecidedAt = decision.String(), shown(by), boundedtext.Text(string(why), mostWhy),
				time.UnixMicro(decided).UTC()
			p.Held, p.Late = false, database.Microseconds(ago) > late
		}
		all = append(all, p)
		return nil
	}, on.Statement(`SELECT p.seq, p.source, p.lane, p.consumer, p.members, p.topic, p.part, first.n, p.id,
p.position, p.sent_at, p.due_at - now_us(), p.held, p.decision, p.decided_at, now_us() - p.decided_at, p.decided_by, p.decided_why, first.bytes
`+firsts+end+` LIMIT ?`), append(append([]any{[]byte(service)}, args...), limit)...)
	if err != nil {
		return nil, fmt.Errorf("list parked sequences: %w", err)
	}
	return all, nil
}

// Behind returns how many messages of a key are parked, and the first one, or 0. db need not have the table.
func Behind(ctx context.Context, db *sql.DB, service string, of Source, key []byte) (n int, seq int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, MaxWrite)
	defer cancel()
	on, err := within(ctx, db)
	if on == nil {
		return 0, 0, err
	}
	err = on.Query(ctx, func() {}, func(rows *sql.Rows) error { return rows.Scan(&n, &seq) },
		on.Statement(`SELECT COUNT(*), COALESCE(MIN(seq), 0) FROM spillway_parked WHERE source = ? AND lane = ?`),
		[]byte(of.Hash(service)), NotNil(LaneOf(key)))
	return n, seq, err
}

// mostShown bounds a text that is shown.
const mostShown = 200

func shown(text []byte) string { return boundedtext.Text(string(text), mostShown) }

// keyShown returns the key that a lane stands for, or the head of it. It returns nil for a message without one.
func keyShown(lane []byte) *string {
	switch len(lane) {
	case Alone:
		return nil
	case hashed:
		lane = lane[:hashed-sha256.Size]
	}
	head := shown(lane)
	return &head
}

// Message is a parked message, for people.
type Message struct {
	Seq      int64             `json:"seq"`
	ID       string            `json:"id"`
	Position int64             `json:"position"`
	SentAt   time.Time         `json:"sent_at,omitzero"`
	Due      time.Time         `json:"due_at"`
	Held     bool              `json:"held"`
	Bytes    int64             `json:"bytes"`
	Decided  string            `json:"decided,omitempty"`
	By       string            `json:"decided_by,omitempty"`
	Why      string            `json:"reason,omitempty"`
	Metadata map[string]string `json:"-"` // with its failure
}

// Show returns the sequence of a message, and its first messages, at most limit.
func Show(ctx context.Context, db *sql.DB, service string, seq int64,
	limit int) (first Parked, all []Message, err error) {
	ctx, cancel := context.WithTimeout(ctx, MaxWrite)
	defer cancel()
	on, first, err := find(ctx, db, service, seq)
	if err != nil {
		return first, nil, err
	}
	err = on.Query(ctx, func() { all = nil }, func(rows *sql.Rows) error {
		var m Message
		var id, by, why, metadata []byte
		var sent, due, held int64
		var decision Decision
		if err := rows.Scan(&m.Seq, &id, &m.Position, &sent, &due, &held, &m.Bytes, &decision, &by, &why,
			&metadata); err != nil {
			return err
		}
		m.ID, m.SentAt, m.Due = shown(id), time.UnixMicro(sent).UTC(), time.Now().Add(database.Microseconds(due)).UTC()
		if m.Held = held != 0 && decision == Undecided; decision != Undecided {
			m.Decided, m.By, m.Why = decision.String(), shown(by), boundedtext.Text(string(why), mostWhy)
		}
		m.Metadata, _ = metadatacodec.Read(metadata) // of a damaged row there is none
		all = append(all, m)
		return nil
	}, on.Statement(`SELECT seq, id, position, sent_at, due_at - now_us(), held, bytes, decision, decided_by, decided_why, metadata
FROM spillway_parked WHERE source = ? AND lane = ? ORDER BY seq LIMIT ?`), first.source, first.lane, limit)
	if err != nil {
		err = fmt.Errorf("show parked messages: %w", err)
	}
	return first, all, err
}

// Listed makes the channel that embeds it one that TableOf knows.
type Listed struct {
	db      *sql.DB
	service string
}

// ListedIn returns the Listed of a channel whose messages are parked in db, or nowhere if that is nil.
func ListedIn(db *sql.DB, service string) Listed { return Listed{db, service} }

func (l Listed) listed() Listed { return l }

// Table is where messages of a service are parked, for those who follow them.
type Table struct {
	on *database.Database
	Listed
}

// TableOf returns the Table of a channel, or nil if there is none.
func TableOf(ctx context.Context, channel interface{ listed() Listed }) (*Table, error) {
	of := channel.listed()
	if of.db == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, MaxWrite)
	defer cancel()
	on, err := within(ctx, of.db)
	if on == nil {
		return nil, err
	}
	return &Table{on, of}, nil
}

// Service is whose messages are parked.
func (t *Table) Service() string { return t.service }

// Standing counts what is parked of a partition, for a consumer group.
type Standing struct {
	Group, Topic        string
	Partition           int32
	Sequences, Messages int
	Held                int           // sequences that stand until a person decides
	Overdue             time.Duration // of the message that is due, or decided, for longest and not begun
}

// IsLate reports whether the partition seems to have no owner, or one that does not drain.
func (s Standing) IsLate() bool { return s.Overdue > late }

// maxStanding bounds what Standing returns.
const maxStanding = 1000

// Standing counts what is parked, by partition, the most overdue first, at most 1,000. It reads all rows of the
// service.
func (t *Table) Standing(ctx context.Context) (all []Standing, err error) {
	ctx, cancel := context.WithTimeout(ctx, MaxWrite)
	defer cancel()
	err = t.on.QueryPlanned(ctx, func() { all = nil }, func(rows *sql.Rows) error {
		var s Standing
		var group, topic []byte
		var overdue int64
		err := rows.Scan(&group, &topic, &s.Partition, &s.Sequences, &s.Messages, &s.Held, &overdue)
		s.Group, s.Topic, s.Overdue = string(group), string(topic), max(0, database.Microseconds(overdue))
		all = append(all, s)
		return err
	}, t.on.Statement(`SELECT p.members, p.topic, p.part, COUNT(*), SUM(first.n), SUM(CASE WHEN p.held <> 0 AND p.decision = 0 THEN 1 ELSE 0 END),
COALESCE(now_us() - MIN(CASE WHEN p.decision > 0 THEN p.decided_at WHEN p.held = 0 THEN p.due_at END), 0) AS overdue `+firsts+`
GROUP BY p.members, p.topic, p.part ORDER BY overdue DESC, p.topic, p.part LIMIT ?`), []byte(t.service), maxStanding)
	if err != nil {
		err = fmt.Errorf("look at parked sequences: %w", err)
	}
	return all, err
}

// Held returns held sequences, the oldest first, at most limit.
func (t *Table) Held(ctx context.Context, limit int) (all []Parked, err error) {
	ctx, cancel := context.WithTimeout(ctx, MaxWrite)
	defer cancel()
	return list(ctx, t.on, t.service, ` WHERE p.held <> 0 AND p.decision = 0 ORDER BY p.seq`, limit)
}
