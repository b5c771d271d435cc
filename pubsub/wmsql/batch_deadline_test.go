package wmsql_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

// impatient gives handlers little time.
func impatient(c *wmsql.SubscriberConfig) {
	*wmsql.BatchTime(c), c.AckDeadline, *wmsql.SettleGrace(c), *wmsql.MaxDeliveries(c) = time.Minute, 600*time.Millisecond, 100*time.Millisecond, 2
}

const setAside = "max_delivery_count_exceeded"

// A handler that writes on beyond its deadline is cut off in the middle: its message and its batch-mates come again.
func TestBatchOverrun(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		var seen deliveries
		late := make(chan error, 3)
		ids := []string{"a", "slow", "c"}
		b.publish(ids...)
		b.run(b.subscriber(impatient), func(msg *message.Message) ([]*message.Message, error) {
			if n := seen.add(msg.UUID); msg.UUID == "slow" && n == 1 {
				var err error
				for err == nil { // without heeding the context
					err = b.write(msg, "half")
				}
				late <- err
				late <- b.write(msg, "half")
				late <- b.pub.Publish(b.outs, message.NewMessageWithContext(msg.Context(), "", []byte("late")))
				return nil, err
			}
			return b.whole(msg)
		})
		for range cap(late) {
			testkit.Is(t, testkit.Receive(t, "a late statement", late), sql.ErrTxDone)
		}
		b.account(ids)
		got := seen.get() // more if a handler takes the machine that long
		testkit.Check(t, got["a"] >= 2 && got["slow"] >= 2, "deliveries %v", got)
	})
}

// One that overruns every time, or never comes back, is set aside in the end, and holds up no message for longer.
func TestBatchOverrunsAlways(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		var seen deliveries
		hang := make(chan struct{})
		ids := []string{"a", "writes", "b", "hangs", "c", "reads", "d"}
		b.publish(ids...)
		stop := b.run(b.subscriber(impatient), func(msg *message.Message) ([]*message.Message, error) {
			seen.add(msg.UUID)
			switch msg.UUID {
			case "writes":
				for {
					if err := b.write(msg, "half"); err != nil {
						return nil, err
					}
				}
			case "hangs":
				if err := b.write(msg, "half"); err != nil {
					return nil, err
				}
				<-hang
				return nil, b.write(msg, "late")
			case "reads": // to the next delivery's time, with rows that are open
				return nil, b.readSlowly(msg)
			}
			return b.whole(msg)
		})
		b.account(ids, "writes", "hangs", "reads")
		b.wantAside(&seen, 2, "writes", "hangs", "reads")
		close(hang)
		stop()
		b.account(ids, "writes", "hangs", "reads")
	})
}

// wantAside checks that messages are set aside after so many deliveries.
func (b *bench) wantAside(seen *deliveries, n int, ids ...string) {
	b.Helper()
	for _, id := range ids {
		testkit.Equal(b, "deliveries of "+id, seen.get()[id], n)
		testkit.Equal(b, "reason of "+id, b.aside(id), setAside)
	}
}

// readSlowly reads more rows than buffers hold, with a pause that outlasts the transaction.
func (b *bench) readSlowly(msg *message.Message) error {
	from := b.sql(`generate_series(1, 20000)`, `seq_1_to_20000`)
	rows, err := txOf(msg.Context()).Query(`SELECT repeat('x', 1000) FROM ` + from)
	if err != nil {
		return err
	}
	defer rows.Close()
	read := 0
	for ; rows.Next(); read++ {
		if read == 5 {
			time.Sleep(time.Second) // deadline and grace pass meanwhile
		}
	}
	testkit.Is(b, rows.Err(), sql.ErrTxDone) // or rows were read beyond the end
	return rows.Err()
}
