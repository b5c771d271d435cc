package letters_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/internal/metadatacodec"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature V9: a table of the first version is upgraded with its rows. They have causes then, letters that were refused
// wait, and a letter that arrives again is the same row.
func TestStore_upgrade(t *testing.T) { onEach(t, testStore_upgrade) }

func testStore_upgrade(t *testing.T, on fixture.Database) {
	db := on.Create(t)()
	const n = 1203 // more than are read at once
	makeVersion1(t, db, n)
	store := storeOn(t, db)
	shop := map[bool]string{false: `'shop'`, true: `CAST('shop' AS BLOB)`}[on.Name == sqliteFile.Name]
	if _, err := db.Exec(`UPDATE spillway_dead_letters SET service = ` + shop); err != nil { // letters without a service get one by hand
		t.Fatal(err)
	}
	groups, err := store.Groups(t.Context(), letters.Filter{})
	if err != nil || len(groups) != 2 || groups[0].Count != n/2+1 || groups[1].Count != n/2 {
		t.Fatalf("%+v, %v", groups, err)
	}
	for _, g := range groups {
		wantCount(t, store, letters.Filter{Causes: []string{g.Cause}}, g.Count)
	}
	again := message.NewMessage("id-0", []byte("{}"))
	again.Metadata = version1(0)
	publish(t, store, "orders.dlq", again)
	fresh := message.NewMessage("new", []byte("{}"))
	fresh.Metadata = version1(2)
	publish(t, store, "orders.dlq", fresh)
	wantCount(t, store, letters.Filter{Causes: []string{groups[0].Cause}}, groups[0].Count+1)
	var seen, missing int
	if err := db.QueryRow(`SELECT seen FROM spillway_dead_letters WHERE seq = 1`).Scan(&seen); err != nil || seen != 2 {
		t.Errorf("seen %d times, %v", seen, err)
	}
	if err := db.QueryRow(`SELECT COUNT(*) FROM spillway_dead_letters WHERE size < 2 OR cause = ''`).Scan(&missing); err != nil || missing != 0 {
		t.Errorf("%d letters without size or cause, %v", missing, err)
	}
	if taken, err := fixture.Take(t.Context(), store, letters.Filter{}, time.Hour, 3); err != nil || len(taken) != 3 {
		t.Errorf("%d taken, %v", len(taken), err)
	}
}

func version1(i int) message.Metadata {
	why := []string{"disk %d full", "no such customer %d"}[i%2]
	return message.Metadata{
		"x-failure-class": "permanent", "x-failure-reason": "permanent_error", "x-failure-type": "*errors.errorString",
		"x-failure-description": fmt.Sprintf(why, i), "x-original-topic": "orders", "x-original-handler": "billing",
	}
}

// makeVersion1 makes a table of the first version, with n letters as that version wrote them. The first one was
// refused.
func makeVersion1(t *testing.T, pool *sql.DB, n int) {
	t.Helper()
	db, err := database.Detect(t.Context(), pool)
	first := letters.Table
	first.Versions = first.Versions[:1]
	if err == nil {
		err = db.Upgrade(t.Context(), first)
	}
	testkit.NoError(t, err)
	insert := db.Statement(`INSERT INTO spillway_dead_letters (identity, dead_letter_topic, id, metadata, payload, origin_topic, handler, class, reason,
	type, stack_hash, description, first_failed_at, last_failed_at, stored_at, status) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, 1, 1, ?)`)
	err = db.Write(t.Context(), func(tx *sql.Tx) error {
		for i := range n {
			m, id, status := version1(i), fmt.Sprintf("id-%d", i), "waiting"
			identity := []byte(id)
			if i == 0 {
				identity = letters.IdentityOf("orders.dlq", &message.Message{UUID: id, Payload: []byte("{}"), Metadata: m})
				status = "refused"
			}
			_, err := tx.Exec(insert, identity, []byte("orders.dlq"), []byte(id), metadatacodec.Metadata(m), []byte("{}"), []byte("orders"), []byte("billing"),
				"permanent", db.Bytes(m["x-failure-reason"]), db.Bytes(m["x-failure-type"]), db.Bytes(""), db.Bytes(m["x-failure-description"]), status)
			if err != nil {
				return err
			}
		}
		return nil
	})
	testkit.NoError(t, err)
}
