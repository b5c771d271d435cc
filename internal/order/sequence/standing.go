package sequence

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// Listed makes the channel that embeds it one that TableOf knows.
type Listed struct {
	db      *sql.DB
	service string
}

// ListedIn returns the Listed of a channel whose messages are parked in db, or nowhere if that is nil.
func ListedIn(db *sql.DB, service string) Listed { return Listed{db, service} }

// Listed returns the Listed of a channel that parks its messages in s.
func (s *Store) Listed() Listed { return Listed{s.db.DB(), s.service} }

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
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	on, err := database.Detect(ctx, of.db)
	if err != nil {
		return nil, err
	}
	if there, err := on.Has(ctx, table); err != nil || !there {
		return nil, err
	}
	return &Table{on, of}, nil
}

// DB is the table's database.
func (t *Table) DB() *sql.DB { return t.db }

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

// firsts are the first messages of the sequences of a service.
const firsts = `FROM spillway_parked p JOIN (SELECT MIN(seq) AS seq, COUNT(*) AS n FROM spillway_parked WHERE service = ?
GROUP BY source, lane) first ON first.seq = p.seq`

// Standing counts what is parked, by partition, the most overdue first, at most 1,000. It reads all rows of the
// service.
func (t *Table) Standing(ctx context.Context) (all []Standing, err error) {
	err = t.look(ctx, func() { all = nil }, func(rows *sql.Rows) error {
		var s Standing
		var group, topic []byte
		var overdue int64
		err := rows.Scan(&group, &topic, &s.Partition, &s.Sequences, &s.Messages, &s.Held, &overdue)
		s.Group, s.Topic, s.Overdue = string(group), string(topic), max(0, microseconds(overdue))
		all = append(all, s)
		return err
	}, `SELECT p.members, p.topic, p.part, COUNT(*), SUM(first.n), SUM(CASE WHEN p.held <> 0 AND p.decision = 0 THEN 1 ELSE 0 END),
COALESCE(now_us() - MIN(CASE WHEN p.decision > 0 THEN p.decided_at WHEN p.held = 0 THEN p.due_at END), 0) AS overdue `+firsts+`
GROUP BY p.members, p.topic, p.part ORDER BY overdue DESC, p.topic, p.part LIMIT ?`, maxStanding)
	return all, err
}

// Held returns held sequences, the oldest first, at most limit.
func (t *Table) Held(ctx context.Context, limit int) (all []Parked, err error) {
	err = t.look(ctx, func() { all = nil }, func(rows *sql.Rows) error {
		p := Parked{Held: true}
		var consumer, group, topic, lane, id []byte
		err := rows.Scan(&p.Seq, &consumer, &group, &topic, &p.Partition, &lane, &p.Messages, &id, &p.Position)
		p.Consumer, p.Group, p.Topic, p.First = shown(consumer), shown(group), shown(topic), shown(id)
		p.Key = keyShown(lane)
		all = append(all, p)
		return err
	}, `SELECT p.seq, p.consumer, p.members, p.topic, p.part, p.lane, first.n, p.id, p.position
`+firsts+` WHERE p.held <> 0 AND p.decision = 0 ORDER BY p.seq LIMIT ?`, limit)
	return all, err
}

func (t *Table) look(ctx context.Context, reset func(), scan func(*sql.Rows) error, query string, limit int) error {
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	err := t.on.QueryPlanned(ctx, reset, scan, t.on.Statement(query), []byte(t.service), limit)
	if err != nil {
		err = fmt.Errorf("look at parked sequences: %w", err)
	}
	return err
}
