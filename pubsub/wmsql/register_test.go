package wmsql_test

import (
	"testing"
	"time"
)

// A server that is busy for seconds when a group registers makes the subscription late, and does not make it fail.
func TestRegisterOnABusyServer(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench, s server) {
		b.publish("a")
		tx, err := b.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		lock := b.sql(`LOCK TABLE "watermill_offsets_`+b.topic+`" IN SHARE MODE`, "SELECT * FROM `watermill_offsets_"+b.topic+"` FOR UPDATE")
		if _, err := tx.Exec(lock); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(2500*time.Millisecond, func() { _ = tx.Rollback() })
		messages := b.messages(b.subscriber())
		b.receive(messages, "a").Ack()
		b.drained()
	})
}
