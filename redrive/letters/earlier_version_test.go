package letters_test

import (
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/internal/metadatacodec"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// earlier are the statements of a program of letters version 3 and letter_counts version 1: without arrivals by the
// minute. It is at work while another one upgrades the tables. (One that starts later is refused.)
type earlier struct{ *database.Database }

const (
	earlierInsert = `INSERT INTO spillway_dead_letters (identity, dead_letter_topic, id, metadata,
	origin_topic, handler, class, reason, type, stack_hash, description, first_failed_at, last_failed_at, stored_at,
	service, cause, size, arrived_redrive_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	earlierBody  = `INSERT INTO spillway_letter_bodies (body, letter_metadata, letter_payload) SELECT seq, ?, ? FROM spillway_dead_letters WHERE identity = ?`
	earlierCount = `INSERT INTO spillway_letter_counts (service, cause, slot, waiting, redriven, succeeded, failed_again, quarantined, refused, discarded,
	arrived, first_failed_at, last_failed_at, last_seq, minute, in_minute, minute_before)
VALUES (?, ?, ?, 1, 0, 0, 0, 0, 0, 0, 1, 1, 2, 0, ?, 1, 0) `
	earlierSets = ` waiting = old.waiting + 1, arrived = old.arrived + 1,
	minute_before = CASE WHEN new <= old.minute THEN old.minute_before WHEN new = old.minute + 1 THEN old.in_minute ELSE 0 END,
	in_minute = CASE WHEN new <= old.minute THEN old.in_minute + 1 ELSE 1 END,
	minute = CASE WHEN new > old.minute THEN new ELSE old.minute END`
)

// put stores a letter of a cause that is there, as that program did.
func (e earlier) put(t *testing.T, id, cause string, slot int) {
	t.Helper()
	identity, metadata := []byte("of an earlier program: "+id), metadatacodec.Metadata(letter(id, "a").Metadata)
	err := e.Write(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), e.Statement(earlierInsert), identity, []byte("orders.dlq"), []byte(id), []byte{}, []byte("orders"), []byte("billing"),
			e.Text("permanent"), e.Bytes("no_such_customer"), e.Bytes("*shop.Error"), e.Bytes("abc"), e.Bytes("customer "+id+" is unknown"),
			fixture.FailedAt.UnixMicro(), fixture.FailedAt.UnixMicro(), time.Now().UnixMicro(), []byte("shop"), e.Text(cause), len(metadata)+1, e.Bytes(""))
		if err == nil {
			_, err = tx.ExecContext(t.Context(), e.Statement(earlierBody), metadata, []byte("a"), identity)
		}
		if err != nil {
			return err
		}
		sets := `ON CONFLICT (service, cause, slot) DO UPDATE SET` + strings.NewReplacer("old.", "spillway_letter_counts.", "new", "excluded.minute").Replace(earlierSets)
		if e.Kind() == database.MySQL {
			sets = `ON DUPLICATE KEY UPDATE` + strings.NewReplacer("old.", "", "new", "VALUES(minute)").Replace(earlierSets)
		}
		_, err = tx.ExecContext(t.Context(), e.Statement(earlierCount+sets), []byte("shop"), e.Text(cause), slot, time.Now().Unix()/60)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Feature V9: a program of an earlier version stores letters beside one of this version, and both are counted, listed
// and taken.
func TestStore_besideEarlierVersion(t *testing.T) { onEach(t, testStore_besideEarlierVersion) }

func testStore_besideEarlierVersion(t *testing.T, on fixture.Database) {
	db := on.Create(t)()
	store := storeOn(t, db)
	publish(t, store, "orders.dlq", letter("new-99", "a"))
	cause := list(t, store, letters.Filter{})[0].Cause
	known := testkit.Must(database.Detect(t.Context(), db))
	old := earlier{known}
	const each = 40
	var writers sync.WaitGroup
	writers.Go(func() {
		for i := range each {
			old.put(t, fmt.Sprint("old-", i), cause, i%16) // in the slots of the other, too
		}
	})
	writers.Go(func() {
		for i := range each {
			publish(t, store, "orders.dlq", letter(fmt.Sprint("new-", i), "a"))
		}
	})
	writers.Wait()
	wantNumbers(t, db, store)
	wantCount(t, store, letters.Filter{Handlers: []string{"billing"}}, 2*each+1)
	arrivals, err := store.Inside().Arrivals(t.Context(), cause)
	n := 0
	for _, in := range arrivals[0].PerMinute {
		n += in
	}
	if groups, err2 := store.Groups(t.Context(), letters.Filter{}); err != nil || err2 != nil || len(groups) != 1 || groups[0].Arrived != 2*each+1 || n > 2*each+1 {
		t.Errorf("%+v, %v, %v, %d of late", groups, err, err2, n) // a minute that the earlier program ends is not among those of late
	}
	taken, err := fixture.Take(t.Context(), store, letters.Filter{IDs: []string{"old-3"}}, time.Hour, 1)
	if err != nil || len(taken) != 1 || string(taken[0].Original.Payload) != "a" || taken[0].Origin.Topic != "orders" {
		t.Fatalf("%+v, %v", taken, err)
	}
	if err := fixture.Mark(t.Context(), store, taken[0], letters.StatusDiscarded, letters.Act{By: "ann"}); err != nil {
		t.Error(err)
	}
	if n, err := store.Purge(t.Context(), letters.Filter{Statuses: letters.Statuses()}, letters.Act{By: "ann"}); err != nil || n != 2*each+1 {
		t.Error(n, err)
	}
	wantNumbers(t, db, store)
}
