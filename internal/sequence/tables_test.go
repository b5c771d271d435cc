package sequence_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"

	watermill "github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/internal/keytable"
	"github.com/watermill-spillway/spillway/internal/sequence"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
)

var source = sequence.Source{Group: "shop", Topic: "orders", Partition: 3}

// tables is the store of the model in a SQLite file. SQLite has one writer: while a claim is open, everything else that
// writes is told to come again.
type tables struct {
	t      testing.TB
	db     *sql.DB
	on     *database.Database
	parked *sequence.Store
	open   bool // a claim
}

const consumer = "shop/billing"

func newTables(t testing.TB) *tables {
	t.Helper()
	db := databases.SQLite.New(t)
	on, err := database.Open(t.Context(), "test", db, "shop", keytable.Table)
	testkit.NoError(t, err)
	parked, err := sequence.NewStore(t.Context(), db, "shop")
	testkit.NoError(t, err)
	s := &tables{t: t, db: db, on: on, parked: parked}
	s.exec(`PRAGMA synchronous = off`)
	return s
}

func (s *tables) exec(statement string) {
	s.t.Helper()
	s.check(errors.Join(func() error { _, err := s.db.Exec(statement); return err }()))
}

func (s *tables) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// empty is for the next run.
func (s *tables) empty() *tables {
	s.exec(`DELETE FROM spillway_keys`)
	s.exec(`DELETE FROM spillway_parked`)
	return s
}

func (s *tables) hash() string {
	var owner sequence.Delivery
	owner.Owner = (&sequence.Ordering{Store: s.parked}).Own(source)
	return owner.Place(watermill.NewMessage("", nil)).Source
}

func (s *tables) key(m message) keytable.Row {
	row := keytable.NewRow(consumer, m.id, nil, 0, false)
	row.Place = keytable.Place{Source: s.hash(), Position: int64(m.offset)}
	return row
}

func (s *tables) row(m message, held bool) *sequence.Row {
	msg := watermill.NewMessage(m.id, nil)
	return &sequence.Row{Lane: []byte(m.key), Position: int64(m.offset), Fingerprint: sequence.FingerprintOf(msg), Held: held,
		Key: sequence.Key{Consumer: consumer, ID: m.id}, RecordKey: []byte(m.key), Msg: msg}
}

type tableClaim struct {
	of *tables
	tx *sql.Tx
}

func (c tableClaim) Commit()  { c.of.open = false; c.of.check(c.tx.Commit()) }
func (c tableClaim) Release() { c.of.open = false; c.of.check(c.tx.Rollback()) }

func (s *tables) Claim(m message) (claim, state) {
	if s.open {
		return nil, busy
	}
	tx, err := s.db.BeginTx(context.Background(), nil)
	s.check(err)
	record, err := keytable.InSQLite.Enter(context.Background(), tx, s.key(m))
	s.check(err)
	if record == nil {
		s.open = true
		return tableClaim{s, tx}, entered
	}
	s.check(tx.Rollback())
	if record.Settled {
		return nil, settled
	}
	return nil, applied
}

func (s *tables) Settle(m message) state {
	if s.open {
		return busy
	}
	record, err := keytable.Settle(context.Background(), s.on, s.key(m))
	s.check(err)
	if record != nil {
		return applied
	}
	return settled
}

func (s *tables) write(work func() error) bool {
	if s.open {
		return false
	}
	s.check(work())
	return true
}

func (s *tables) Park(m message, held bool) bool {
	return s.write(func() error { return s.parked.Park(context.Background(), source, s.row(m, held), 0) })
}

func (s *tables) Hold(m message) bool {
	return s.write(func() error { return s.parked.Again(context.Background(), source, s.row(m, true), 0) })
}

// Decide is what the command does, with the number of the row that a person saw.
func (s *tables) Decide(m message, what sequence.Decision) bool {
	return s.write(func() error {
		var seq int64
		row := s.row(m, false)
		err := s.db.QueryRow(`SELECT seq FROM spillway_parked WHERE position = ? AND fingerprint = ?`, row.Position, row.Fingerprint).Scan(&seq)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		s.check(err)
		_, err = sequence.Decide(context.Background(), s.db, "shop", seq, sequence.Deciding{What: what, Record: func(*sql.Tx, string, sequence.Parked, int) error { return nil }})
		if errors.Is(err, sequence.ErrNotFirst) || errors.Is(err, sequence.ErrNotHeld) || errors.Is(err, sequence.ErrDecided) {
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
	rows, err := s.parked.Heads(context.Background(), source, []byte(key), n)
	s.check(err)
	return rows
}

func (s *tables) Head(key string) (parked, bool) {
	rows := s.heads(key, 1)
	if len(rows) == 0 {
		return parked{}, false
	}
	return parked{of(rows[0]), rows[0].Held, rows[0].Decision}, true
}

func (s *tables) Length(key string) int { return len(s.heads(key, 100)) }

func (s *tables) Load() (keys []string) {
	all, err := s.parked.Load(context.Background(), source)
	s.check(err)
	for _, w := range all {
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
	s.check(err)
	absorbs, err := keytable.InSQLite.Absorbs(context.Background(), s.db, row)
	s.check(err)
	return record != nil && free || absorbs
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

// The protocol holds with the tables, too. SPILLWAY_CHAOS makes the runs more.
func TestModelOnTables(t *testing.T) {
	s, random := newTables(t), testkit.Random(t)
	for range testkit.Campaign(t, 60) {
		seed := random.Uint64()
		if violated := playOn(s.empty(), none, seeded(seed)); violated != "" {
			t.Fatalf("seed %d: %s", seed, violated)
		}
	}
}

// Each fault that a process can have is found with the tables, too.
func TestModelOnTablesFindsFaults(t *testing.T) {
	s := newTables(t)
	for broken, first := range map[fault]uint64{ // a run that is known to find it takes the place of hundreds
		commitTooFar: 0, parkLater: 0, noTrace: 0, settleLater: 2076, mixedVersions: 2564, unfetchedDrain: 0,
	} {
		t.Run(string(broken), func(t *testing.T) {
			s.t = t
			for seed := first; seed < first+100; seed++ {
				if violated := playOn(s.empty(), broken, seeded(seed)); violated != "" {
					t.Logf("run %d: %s", seed+1, violated)
					return
				}
			}
			t.Error("no violation was found")
		})
	}
}
