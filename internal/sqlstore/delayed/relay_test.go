package delayed

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
)

// A publisher that is slower than the lease keeps it, and no other relay publishes.
func TestSlowPublisher(t *testing.T) {
	t.Parallel()                  // it waits all the time
	const lease = 3 * time.Second // a renewal may come late by two thirds of it
	d := databases.Postgres
	address := d.Create(t)
	s := openStore(t, d, address)
	fill(t, s, "orders", 3)
	out := &outbox{before: func(string, []*message.Message) error { time.Sleep(lease + lease/2); return nil }}
	for range 2 {
		start(t, openStore(t, d, address), out, RelayConfig{Lease: lease, Poll: 10 * time.Millisecond})
	}
	eventually(t, "nothing is kept", func() bool { return kept(t, s) == 0 })
	wantOnce(t, out.ids(), 3)
}

// A batch that loses its lease is cut: others have it by then.
func TestLeaseLost(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		s := openStore(t, d, address)
		for i := range 10 {
			put(t, s, fmt.Sprint("topic", i%2), newMessage(numberedID(i)), 0)
		}
		var once sync.Once
		out := &outbox{before: func(string, []*message.Message) error {
			once.Do(func() { // as a relay that takes them after a stop of the world
				const anothers = `UPDATE spillway_delayed SET token = 'another', ready_at = ready_at + 3600000000`
				testkit.Is(t, testkit.Err(s.db.DB().Exec(anothers)), nil)
				time.Sleep(200 * time.Millisecond)
			})
			return nil
		}}
		r := start(t, s, out, RelayConfig{Lease: 300 * time.Millisecond})
		eventually(t, "one is published", func() bool { return len(out.all()) > 0 })
		put(t, s, "topic", newMessage(numberedID(10)), 0)
		eventually(t, "the relay goes on", func() bool { return len(out.all()) > 1 })
		r.stop()
		got := out.ids()
		testkit.Check(t, len(got) == 2 && kept(t, s) == 10, "published: %v, kept: %d", got, kept(t, s))
	})
}

// What a relay does with rows that are another's by now leaves them as they are.
func TestOtherToken(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		s, ctx := openStore(t, d, address), t.Context()
		put(t, s, "orders", newMessage("1"), 0)
		var b batch
		eventually(t, "it is due", func() bool {
			b = testkit.Must(s.take(ctx, 1, time.Hour, nil))
			return len(b.rows) == 1
		})
		testkit.Must(s.db.DB().Exec(`UPDATE spillway_delayed SET token = 'another', ready_at = 7`))
		seqs := seqsOf(b.rows)
		testkit.NoError(t, s.remove(ctx, b.token, seqs))
		testkit.NoError(t, s.release(ctx, b.token, seqs))
		testkit.NoError(t, s.postpone(ctx, b.token, seqs[0], time.Minute))
		testkit.Returns(t, false)(s.renew(ctx, b.token, seqs, time.Hour))
		var rows int
		const as = `SELECT COUNT(*) FROM spillway_delayed WHERE token = 'another' AND ready_at = 7 AND failures = 0`
		testkit.NoError(t, s.db.DB().QueryRow(as).Scan(&rows))
		testkit.Equal(t, "rows that are as they were", rows, 1)
	})
}

// A relay that stops deletes what was published and gives back the rest at once.
func TestStop(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		s := openStore(t, d, address)
		for i := range 10 {
			put(t, s, fmt.Sprint("topic", i%2), newMessage(numberedID(i)), 0)
		}
		publishing, goOn := make(chan struct{}), make(chan struct{})
		var calls atomic.Int64
		out := &outbox{before: func(string, []*message.Message) error {
			if calls.Add(1) == 3 {
				close(publishing)
				<-goOn
			}
			return nil
		}}
		r := start(t, s, out, RelayConfig{Lease: time.Hour})
		<-publishing
		r.cancel()
		close(goOn)
		<-r.ended
		time.Sleep(2 * s.tick) // or the last ones are not due
		got := out.ids()
		testkit.Check(t, len(got) == 3 && kept(t, s) == 7, "published: %v, kept: %d", got, kept(t, s))
		b, err := s.take(t.Context(), 100, time.Hour, nil)
		testkit.Check(t, err == nil && len(b.rows) == 7 && b.rows[0].msg.UUID == numberedID(3),
			"%d are free: %v", len(b.rows), err)
	})
}

// A batch is bounded in bytes: what is in memory does not grow with what waits.
func TestBytes(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		s := openStore(t, d, address)
		for i, mib := range []int{5, 5, 5, 5, 0, 12, 2, 17, 0} {
			put(t, s, "orders", message.NewMessage(numberedID(i), make([]byte, mib)), 0)
		}
		testkit.Must(s.db.DB().Exec(`UPDATE spillway_delayed SET size = LENGTH(payload) * 1048576`))
		// Or the last ones are not due.
		time.Sleep(2 * s.tick)
		for i, want := range []int{3, 2, 2, 1, 1} {
			b, err := s.take(t.Context(), 100, time.Hour, nil)
			testkit.Check(t, err == nil && len(b.rows) == want && b.more == (i < 4),
				"%d rows, more: %v, %v; want %d", len(b.rows), b.more, err, want)
		}
	})
}

// A Put of this process wakes the relay that sleeps for longer.
func TestWake(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		s := openStore(t, d, address)
		out := &outbox{}
		start(t, s, out, RelayConfig{Poll: time.Hour})
		for i, after := range []time.Duration{0, 20 * time.Millisecond, time.Hour, 40 * time.Millisecond} {
			time.Sleep(20 * time.Millisecond) // it sleeps as a rule, and sometimes looks
			put(t, s, "orders", newMessage(numberedID(i)), after)
		}
		eventually(t, "what is due is published", func() bool { return len(out.all()) == 3 })
		eventually(t, "it is deleted", func() bool { return kept(t, s) == 1 })
		var all sync.WaitGroup // whatever the relay does meanwhile
		for i := range 100 {
			all.Go(func() {
				after := time.Duration(i%5) * time.Millisecond
				testkit.Is(t, s.Put(context.Background(), "orders", newMessage(numberedID(i+10)), after), nil)
			})
		}
		all.Wait()
		eventually(t, "what is due is published", func() bool { return len(out.all()) == 103 })
	})
}
