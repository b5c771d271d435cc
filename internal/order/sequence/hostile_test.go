package sequence_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	watermill "github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/hold/outage"
	"github.com/watermill-spillway/spillway/internal/order/parked"
	"github.com/watermill-spillway/spillway/internal/order/sequence"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
)

func opened(t testing.TB, db *sql.DB) (*database.Database, *sequence.Store) {
	t.Helper()
	on := testkit.Must(database.Open(t.Context(), "test", db, "shop", keytable.Table))
	return on, testkit.Must(sequence.NewStore(t.Context(), db, "shop"))
}

func rowOf(key []byte, position int64, id, payload string) *sequence.Row {
	msg := watermill.NewMessage(id, []byte(payload))
	msg.Metadata.Set("customer", "ann\x00\xff")
	return &sequence.Row{Lane: parked.LaneOf(key), Position: position, Fingerprint: sequence.FingerprintOf(msg), RecordKey: key, Msg: msg,
		SentAt: time.UnixMilli(1234567), Key: keytable.Key{Consumer: "shop/billing", ID: id}}
}

// Conventions, bad input: keys of any bytes and up to 1 MiB are sequences of their own, and come back as they were.
func TestHostileKeys(t *testing.T) {
	long := bytes.Repeat([]byte("k"), 1<<20)
	keys := [][]byte{{}, []byte("a"), []byte("A"), []byte("a "), {0}, {0xff, 0xfe}, []byte("'; DROP TABLE spillway_parked; --"), long[:200], long[:201], long,
		append(slices.Clone(long), 'x')}
	databases.Each(t, func(t *testing.T, kind databases.Database, address string) {
		_, s := opened(t, kind.Open(t, address))
		for range 2 { // again: nothing is written twice
			for at, key := range keys {
				testkit.NoError(t, s.Park(t.Context(), source, rowOf(key, int64(at), "id\x00\xff", ""), 0))
			}
		}
		testkit.Equal(t, "sequences", len(testkit.Must(s.Load(t.Context(), source))), len(keys))
		for at, key := range keys {
			rows, err := s.Heads(t.Context(), source, parked.LaneOf(key), 10)
			testkit.Require(t, err == nil && len(rows) == 1, "%d: %d rows: %v", at, len(rows), err)
			r := rows[0]
			testkit.Check(t, bytes.Equal(r.RecordKey, key) && r.RecordKey != nil && r.Position == int64(at) && r.Msg.UUID == "id\x00\xff" &&
				r.Msg.Payload != nil && r.Msg.Metadata.Get("customer") == "ann\x00\xff" && r.SentAt.UnixMilli() == 1234567,
				"%d: %+v", at, r.Msg)
		}
		db := kind.Open(t, address)
		listed := testkit.Must(parked.List(t.Context(), db, "shop", 100))
		testkit.Require(t, len(listed) == len(keys), "listed %d", len(listed))
		l := listed[0]
		testkit.Check(t,
			l.Key != nil && *l.Key == "" && l.Topic == "orders" && l.Partition == 3 && l.Messages == 1 && !l.Late, "%+v", l)
		other := source
		other.Group = "another"
		testkit.Check(t, len(testkit.Must(parked.List(t.Context(), db, "another", 100))) == 0 &&
			len(testkit.Must(s.Load(t.Context(), other))) == 0, "another service, or group, has sequences")
	})
}

// A topic that was made anew has the old offsets again: its messages are others, and wait behind those before them.
func TestTopicMadeAnew(t *testing.T) {
	databases.Each(t, func(t *testing.T, kind databases.Database, address string) {
		_, s := opened(t, kind.Open(t, address))
		for _, row := range []*sequence.Row{rowOf([]byte("a"), 7, "a", "old"), rowOf([]byte("a"), 7, "a", "new")} {
			testkit.NoError(t, s.Park(t.Context(), source, row, time.Hour))
		}
		testkit.NoError(t, s.Delete(t.Context(), source, rowOf([]byte("a"), 7, "a", "old")))
		rows := testkit.Must(s.Heads(t.Context(), source, []byte("a"), 10))
		testkit.Check(t,
			len(rows) == 1 && string(rows[0].Msg.Payload) == "new" && time.Until(rows[0].Due) >= time.Minute, "%+v", rows)
	})
}

// A claim that is open holds the key: to settle waits for it, and no longer than its context.
func TestSettleMeetsClaim(t *testing.T) {
	for _, kind := range []databases.Database{databases.Postgres, databases.MariaDB} {
		t.Run(kind.Name, func(t *testing.T) {
			db := kind.New(t)
			on, _ := opened(t, db)
			row := keytable.NewRow("shop/billing", "a", nil, 0, false)
			row.Place = keytable.Place{Source: "source", Position: 3}
			tx := testkit.Must(db.BeginTx(t.Context(), nil))
			testkit.Must(keytable.DialectOf(on.Kind()).Enter(t.Context(), tx, row))
			short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			testkit.Check(t, testkit.Err(keytable.Settle(short, on, row)) != nil, "it is settled, and claimed")
			settled := make(chan *keytable.Record)
			go func() {
				record, err := keytable.Settle(t.Context(), on, row)
				testkit.Check(t, err == nil, "%v", err)
				settled <- record
			}()
			time.Sleep(50 * time.Millisecond)
			testkit.NoError(t, tx.Commit())
			testkit.Check(t, <-settled != nil, "the effect was not seen")
		})
	}
}

// A purge leaves the keys of parked messages, and takes those that are settled.
func TestPurgeSparesParked(t *testing.T) {
	databases.Each(t, func(t *testing.T, kind databases.Database, address string) {
		on, s := opened(t, kind.Open(t, address))
		for at, id := range []string{"parked", "old"} {
			row := keytable.NewRow("shop/billing", id, nil, 0, false)
			row.Place = keytable.Place{Source: "source", Position: int64(at)}
			testkit.Must(keytable.Settle(t.Context(), on, row))
		}
		testkit.NoError(t, s.Park(t.Context(), source, rowOf([]byte("a"), 7, "parked", ""), 0))
		for _, want := range []int{1, 0} {
			testkit.Returns(t, want)(keytable.Purge(t.Context(), on, time.Now().Add(time.Minute).UnixMilli(), 10))
		}
	})
}

// Erased messages are gone, and what comes again of them from the source is absorbed.
func TestErase(t *testing.T) {
	databases.Each(t, func(t *testing.T, kind databases.Database, address string) {
		db := kind.Open(t, address)
		on, s := opened(t, db)
		for n := range 4 {
			testkit.NoError(t, s.Park(t.Context(), source, rowOf([]byte("a"), int64(n), fmt.Sprint("a", n), ""), 0))
		}
		erasing := parked.Erasing{Match: func(id string, metadata map[string]string) bool { return id == "a1" && metadata["customer"] != "" }, DryRun: true}
		for _, left := range []int{4, 3} {
			testkit.Returns(t, 1)(parked.Erase(t.Context(), keytable.Keys{On: on, Service: "shop"}, erasing))
			testkit.Equal(t, "rows", len(testkit.Must(s.Heads(t.Context(), source, []byte("a"), 10))), left)
			erasing.DryRun = false
		}
		row := keytable.NewRow("shop/billing", "a1", nil, 0, false)
		row.Place = (&sequence.Delivery{Owner: (&sequence.Ordering{Store: s}).Own(source), Position: 1}).Place(watermill.NewMessage("a1", nil))
		testkit.Returns(t, true)(keytable.DialectOf(on.Kind()).Absorbs(t.Context(), db, row)) // or it would be handled again
		testkit.Returns(t, 3)(parked.Left(t.Context(), db, "shop"))
	})
}

// Feature R13, promise P1: numbers that a restore left behind the rows are no rows that are there. The message is not
// parked, which is an outage, and the error says how to heal it. A message that is parked is not parked again.
func TestNumbersBehindTheRows(t *testing.T) {
	databases.Each(t, func(t *testing.T, kind databases.Database, address string) {
		db := kind.Open(t, address)
		_, s := opened(t, db)
		key := []byte("k")
		testkit.NoError(t, s.Park(t.Context(), source, rowOf(key, 1, "a", ""), 0))
		db.SetMaxOpenConns(1)
		databases.Exec(t, db, map[string]string{"postgres": `ALTER TABLE spillway_parked ALTER seq RESTART`,
			"mariadb": `SET insert_id = 1`, "sqlite": `DELETE FROM sqlite_sequence`}[kind.Name])
		if err := s.Park(t.Context(), source, rowOf(key, 2, "b", ""), 0); kind.Name != "sqlite" {
			var own *database.OwnKeyError
			testkit.Require(t, errors.As(err, &own) && outage.Unavailable(err) && own.Table == "spillway_parked", "parked: %v", err)
			databases.Exec(t, db, own.Remedy)
		}
		for range 2 {
			testkit.NoError(t, s.Park(t.Context(), source, rowOf(key, 2, "b", ""), 0))
		}
		testkit.Equal(t, "rows", databases.Text(t, db, `SELECT count(*) FROM spillway_parked`), "2")
	})
}
