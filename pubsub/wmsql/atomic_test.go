package wmsql_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/poison"
)

// Feature D9: the handler's writes, its key, its outputs, its dead letter and its acknowledgement commit together; what a
// failed attempt wrote is undone to its savepoint, failed statements included.
func TestEverythingInOneTransaction(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		attempts := map[string]int{}
		b.run(b.subscriber(), func(msg *message.Message) ([]*message.Message, error) {
			attempts[msg.UUID]++
			if err := b.write(msg, "half"); err != nil {
				return nil, err
			}
			switch {
			case msg.UUID == "bad", msg.UUID == "once" && attempts["once"] == 1:
				if _, err := idempotency.Tx(msg.Context()).Exec(`INSERT INTO nowhere VALUES (1)`); err == nil {
					t.Error("there is a table nowhere")
				}
				return nil, errors.New("failed")
			}
			out := message.NewMessage("", []byte("out of "+msg.UUID))
			return []*message.Message{out}, b.write(msg, "whole")
		})
		b.publish("good", "bad", "once", "last")
		b.until("all are settled", func() bool { return len(b.effects()["last"]) == 2 })
		for id, steps := range b.effects() {
			if slices.Sort(steps); id == "bad" || !slices.Equal(steps, []string{"half", "whole"}) {
				t.Errorf("%s: %v", id, steps)
			}
		}
		b.until("all are acknowledged", func() bool { return b.backlog(b.topic, "") == 0 })
		letter, err := poison.Decode(b.take(b.topic+".dlq", 1)[0])
		if err != nil || letter.Original.UUID != "bad" || string(letter.Original.Payload) != "payload of bad" || letter.Origin.Topic != b.topic {
			t.Errorf("letter %+v, %v", letter, err)
		}
		var outs []string
		for _, msg := range b.take(b.outs, 3) {
			outs = append(outs, string(msg.Payload))
		}
		if slices.Sort(outs); !slices.Equal(outs, []string{"out of good", "out of last", "out of once"}) {
			t.Errorf("outputs %q", outs)
		}
		var keys int
		if err := b.db.QueryRow(`SELECT count(*) FROM spillway_keys WHERE outputs IS NOT NULL`).Scan(&keys); err != nil || keys != 3 {
			t.Errorf("%d keys, %v", keys, err)
		}
	})
}
