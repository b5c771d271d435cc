package sequence_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"

	watermill "github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
)

var source = parked.Source{Group: "shop", Topic: "orders", Partition: 3}

// message is one delivery of the source. A redrive is another one, with the same id and a higher offset.
type message struct {
	id, key string
	offset  int
}

// state is what a claim finds.
type state int

const (
	entered state = iota // the claim is the caller's
	busy                 // another transaction holds the key
	applied              // settled with an effect
	settled              // settled without one
)

// waiting is the first message of a sequence that waits.
type waiting struct {
	message
	held    bool // until a person decides
	decided parked.Decision
}

// tables is the store of the model in a SQLite file. SQLite has one writer: while a claim is open, everything else that
// writes is told to come again: Settle by busy, and the others by false.
type tables struct {
	db     *sql.DB
	on     *database.Database
	parked *sequence.Store
	open   bool // a claim
}

const consumer = "shop/billing"

func newTables(t testing.TB) *tables {
	t.Helper()
	db := databases.SQLite.New(t)
	on, parked := opened(t, db)
	testkit.Must(db.Exec(`PRAGMA synchronous = off`))
	return &tables{db: db, on: on, parked: parked}
}

// empty is for the next run.
func (s *tables) empty() *tables {
	testkit.Must(s.db.Exec(`DELETE FROM spillway_keys`))
	testkit.Must(s.db.Exec(`DELETE FROM spillway_parked`))
	return s
}

func (s *tables) hash() string {
	d := sequence.Delivery{Owner: (&sequence.Ordering{Store: s.parked}).Own(source)}
	return d.Place(watermill.NewMessage("", nil)).Source
}

func (s *tables) key(m message) keytable.Row {
	row := keytable.NewRow(consumer, m.id, nil, 0, false)
	row.Place = keytable.Place{Source: s.hash(), Position: int64(m.offset)}
	return row
}

func (s *tables) row(m message, held bool) *sequence.Row {
	msg := watermill.NewMessage(m.id, nil)
	return &sequence.Row{Lane: []byte(m.key), Position: int64(m.offset), Fingerprint: sequence.FingerprintOf(msg), Held: held,
		Key: keytable.Key{Consumer: consumer, ID: m.id}, RecordKey: []byte(m.key), Msg: msg}
}

func must(err error) { testkit.Must(0, err) }

func (s *tables) Claim(m message) (end func(commit bool), found state) {
	if s.open {
		return nil, busy
	}
	tx := testkit.Must(s.db.Begin())
	record := testkit.Must(keytable.InSQLite.Enter(context.Background(), tx, s.key(m)))
	if record == nil {
		s.open = true
		return func(commit bool) {
			s.open = false
			if commit {
				must(tx.Commit())
			} else {
				must(tx.Rollback())
			}
		}, entered
	}
	must(tx.Rollback())
	if record.Settled {
		return nil, settled
	}
	return nil, applied
}

func (s *tables) Settle(m message) state {
	if s.open {
		return busy
	}
	if testkit.Must(keytable.Settle(context.Background(), s.on, s.key(m))) != nil {
		return applied
	}
	return settled
}

func (s *tables) write(work func() error) bool {
	if s.open {
		return false
	}
	must(work())
	return true
}

func (s *tables) Park(m message, held bool) bool {
	return s.write(func() error { return s.parked.Park(context.Background(), source, s.row(m, held), 0) })
}

func (s *tables) Hold(m message) bool {
	return s.write(func() error { return s.parked.Again(context.Background(), source, s.row(m, true), 0) })
}

// Decide is what the command does, with the number of the row that a person saw.
func (s *tables) Decide(m message, what parked.Decision) bool {
	return s.write(func() error {
		var seq int64
		row := s.row(m, false)
		err := s.db.QueryRow(`SELECT seq FROM spillway_parked WHERE position = ? AND fingerprint = ?`, row.Position, row.Fingerprint).Scan(&seq)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		must(err)
		_, err = parked.Decide(context.Background(), s.db, "shop", seq, parked.Deciding{What: what, Record: noRecord})
		if errors.Is(err, parked.ErrNotFirst) || errors.Is(err, parked.ErrNotHeld) || errors.Is(err, parked.ErrDecided) {
			return nil
		}
		return err
	})
}

func (s *tables) Delete(m message) bool {
	return s.write(func() error { return s.parked.Delete(context.Background(), source, s.row(m, false)) })
}

func of(row *sequence.Row) message {
	return message{row.Msg.UUID, string(row.Lane), int(row.Position)}
}

func (s *tables) heads(key string, n int) []*sequence.Row {
	return testkit.Must(s.parked.Heads(context.Background(), source, []byte(key), n))
}

func (s *tables) Head(key string) (waiting, bool) {
	rows := s.heads(key, 1)
	if len(rows) == 0 {
		return waiting{}, false
	}
	return waiting{of(rows[0]), rows[0].Held, rows[0].Decision}, true
}

func (s *tables) Length(key string) int { return len(s.heads(key, 100)) }

func (s *tables) Load() (keys []string) {
	for _, w := range testkit.Must(s.parked.Load(context.Background(), source)) {
		keys = append(keys, string(w.Lane))
	}
	slices.Sort(keys)
	return keys
}

func (s *tables) Held() (held []message) {
	for _, key := range s.Load() {
		for _, row := range s.heads(key, 100) {
			if row.Held {
				held = append(held, of(row))
			}
		}
	}
	slices.SortFunc(held, func(a, b message) int { return a.offset - b.offset })
	return held
}

func (s *tables) IsSettled(m message) bool {
	row := s.key(m)
	record, free, err := keytable.InSQLite.Find(context.Background(), s.db, row)
	if errors.Is(err, sql.ErrNoRows) {
		return false
	}
	must(err)
	return record != nil && free || testkit.Must(keytable.InSQLite.Absorbs(context.Background(), s.db, row))
}

// Purge makes the key the oldest, and purges one.
func (s *tables) Purge(id string) bool {
	return s.write(func() error {
		if _, err := s.db.Exec(`UPDATE spillway_keys SET applied_at = 1 WHERE id = ?`, id); err != nil {
			return err
		}
		_, err := keytable.Purge(context.Background(), s.on, 2, 1)
		_, again := s.db.Exec(`UPDATE spillway_keys SET applied_at = 3 WHERE applied_at = 1`)
		return errors.Join(err, again)
	})
}
