package wmsql_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/poison"
)

// Features P4, D16: the largest message that a publisher can write can be set aside, and those behind it go on; so can the
// largest that another client can write. The letter holds all of it, and can be published to the topic again. Drivers that
// write arguments into the statement are no exception.
func TestLargestIsSetAside(t *testing.T) {
	for settings, filling := range map[string]string{"interpolateParams=false": "x", "interpolateParams=true": "\x00"} {
		t.Run(settings, func(t *testing.T) {
			dsn := mysqltest.With(mysqltest.Database(t), settings)
			b := newBench(t, func(t testing.TB) *sql.DB { return mysqltest.Open(t, dsn) })
			var packet int
			if err := b.db.QueryRow(`SELECT @@max_allowed_packet`).Scan(&packet); err != nil {
				t.Fatal(err)
			}
			written := map[string]*message.Message{}
			of := func(id string, payload, metadata int) *message.Message {
				msg := message.NewMessage(id, bytes.Repeat([]byte(filling), payload))
				msg.Metadata.Set("large", strings.Repeat("y", metadata))
				written[msg.UUID] = msg
				return msg
			}
			for _, msg := range []*message.Message{of("payload", packet-144<<10, 1), of("metadata", 1, packet-144<<10)} {
				if err := b.pub.Publish(b.topic, msg); err != nil {
					t.Errorf("%.300v", err)
				}
			}
			for _, msg := range []*message.Message{of("large", packet-120<<10, 1), of("large", 1, packet-120<<10), of("large", packet/2, packet/2)} {
				if err := b.pub.Publish(b.topic, msg); !errors.Is(err, classify.ErrTooLarge) {
					t.Errorf("no room for its letter: %.300v", err)
				}
			}
			delete(written, "large")
			anybody := mysqltest.Open(t, strings.Replace(dsn, settings, "interpolateParams=false", 1))
			for i, less := range []int{17 << 10, 300} {
				msg := of(fmt.Sprint("anybody's ", i), packet-less, 1)
				if _, err := anybody.Exec(`INSERT INTO `+b.table(b.topic)+` (uuid, payload, metadata) VALUES (?, ?, '{"large": "y"}')`, msg.UUID, []byte(msg.Payload)); err != nil {
					t.Fatal(err)
				}
			}
			b.publish("good")
			b.run(b.subscriber(), func(msg *message.Message) ([]*message.Message, error) {
				if msg.UUID != "good" {
					return nil, classify.Permanent(errors.New("it is large"))
				}
				return nil, b.write(msg, "effect")
			})
			b.drained()
			if len(b.effects()["good"]) != 1 {
				t.Error("the message behind them was not handled")
			}
			found := 0
			b.each(b.topic+".dlq", func(msg *message.Message) {
				letter, err := poison.Decode(msg)
				if err != nil {
					t.Fatal(err)
				}
				found++
				original := written[letter.Original.UUID]
				if original == nil || !bytes.Equal(original.Payload, letter.Original.Payload) || original.Metadata["large"] != letter.Original.Metadata["large"] {
					t.Errorf("the letter of %s is not as it was", letter.Original.UUID)
				}
				if err := b.pub.Publish(b.outs, msg); err != nil {
					t.Errorf("%s: published again: %.300v", letter.Original.UUID, err)
				}
			})
			if found != len(written) {
				t.Errorf("%d letters of %d messages", found, len(written))
			}
		})
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
