package frontdoor_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Decision 13: while the database only reads, messages are held. One line says why, and what to do.
func TestDatabaseBeginsToReadOnly(t *testing.T) {
	var only atomic.Bool
	address := testkit.Must(pgx.ParseConfig(postgrestest.Schema(t)))
	db := stdlib.OpenDB(*address, stdlib.OptionResetSession(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, fmt.Sprintf(`SET default_transaction_read_only = %t`, only.Load()))
		return err
	}))
	t.Cleanup(func() { _ = db.Close() })
	testkit.Must(db.Exec(`CREATE TABLE effects (id text)`))
	log := &testkit.Log{}
	dlc := testkit.Must(spillway.New(t.Context(), spillway.Config{Service: "shop", DB: db, Logger: log}))
	live := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil)
	testkit.RunRouter(t, log, func(r *message.Router) {
		dlc.Attach(r)
		r.AddConsumerHandler("billing", "orders", live, func(msg *message.Message) error {
			_, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(), `INSERT INTO effects VALUES ($1)`, msg.UUID)
			return err
		})
	})
	effects := func() (n int) {
		testkit.NoError(t, db.QueryRow(`SELECT count(*) FROM effects`).Scan(&n))
		return n
	}
	send := func(id string) { testkit.NoError(t, live.Publish("orders", message.NewMessage(id, nil))) }
	send("1")
	testkit.Eventually(t, "an effect", func() bool { return effects() == 1 })
	only.Store(true)
	send("2")
	testkit.Eventually(t, "the line of the outage", func() bool { return len(log.Errors()) > 0 })
	only.Store(false)
	testkit.Eventually(t, "the held message", func() bool { return effects() == 2 })
	lines := log.Errors()
	testkit.Check(t, len(lines) == 1 && strings.Contains(fmt.Sprint(lines[0].Err),
		"the database only reads"), "%d lines: %v", len(lines), lines)
	if found := testkit.Must(dlc.Letters().List(t.Context(), letters.Filter{})); len(found) > 0 {
		t.Errorf("%d letters of a healthy message", len(found))
	}
}
