package wmsql_test

import (
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
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

// Outputs that are too large for one statement are written by several, together or not at all.
func TestLargeTogether(t *testing.T) {
	dsn := mysqltest.Database(t)
	b := newBench(t, func(t testing.TB) *sql.DB { return mysqltest.Open(t, dsn) })
	var outs []*message.Message
	for i := range 5 {
		outs = append(outs, message.NewMessage(fmt.Sprint(i), make([]byte, 5<<20)))
	}
	if err := b.pub.Publish(b.outs, outs...); err != nil {
		t.Error(err)
	}
	if n := b.backlogOf(b.outs); n != len(outs) {
		t.Errorf("%d of %d are written", n, len(outs))
	}
	outs = append(outs, message.NewMessage("too large", make([]byte, 17<<20)))
	if err := b.pub.Publish(b.outs, outs...); !errors.Is(err, classify.ErrTooLarge) {
		t.Error(err)
	}
	if n := b.backlogOf(b.outs); n != len(outs)-1 {
		t.Errorf("%d are written with one that is refused", n-len(outs)+1)
	}
}
