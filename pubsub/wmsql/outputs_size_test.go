package wmsql_test

import (
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/delay"
	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/middleware/stages"
)

// Features D9, I3, promise P4: an output above max_allowed_packet makes its source a letter after one attempt, without
// a wait in a stage. The message behind it is handled.
func TestOutputLargerThanPacket(t *testing.T) {
	dsn := mysqltest.Database(t)
	b := newBench(t, func(t testing.TB) *sql.DB { return mysqltest.Open(t, dsn) })
	var packet int
	if err := b.db.QueryRow(`SELECT @@max_allowed_packet`).Scan(&packet); err != nil {
		t.Fatal(err)
	}
	store, err := delay.NewStore(t.Context(), b.db, "shop")
	if err != nil {
		t.Fatal(err)
	}
	sub := b.subscriber()
	var attempts atomic.Int64
	b.run(sub, func(msg *message.Message) ([]*message.Message, error) {
		if msg.UUID == "small" {
			return nil, b.write(msg, "handled")
		}
		attempts.Add(1)
		return message.Messages{message.NewMessage("out", make([]byte, packet))}, b.write(msg, "undone")
	}, func(c *spillway.Config) {
		c.Stages = &stages.Config{
			Subscriber: func(string, string) (message.Subscriber, error) { return sub, nil }, Publisher: b.publisher(), Store: store,
			Stages: []stages.Stage{{Delay: time.Hour}},
		}
	})
	b.publish("large", "small")
	b.drained()
	letters := b.take(b.topic+".dlq", 1)
	if effects := b.effects(); attempts.Load() != 1 || len(effects) != 1 || len(effects["small"]) != 1 || letters[0].UUID != "large" {
		t.Errorf("%d attempts, effects %v, letter %v", attempts.Load(), effects, letters[0])
	}
}
