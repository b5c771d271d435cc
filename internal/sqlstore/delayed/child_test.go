package delayed

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/child"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
)

// order is what a relay in a process of its own is told.
type order struct {
	Driver, Address string
	Kill            string // the step at which it ends itself without a word
	After           int    // that many calls
}

const (
	killTaken     = "after a take"
	killPublished = "after a publish, before the delete"
	killDeleted   = "after a delete, before the next take"
)

func (o order) relay() error {
	db := testkit.Must(sql.Open(o.Driver, o.Address))
	store := testkit.Must(NewStore(context.Background(), db, "shop"))
	calls := 0
	kill := func(step string) {
		if step == o.Kill && calls >= o.After {
			child.Kill()
		}
	}
	relay := NewRelay(store, &outbox{before: func(_ string, messages []*message.Message) error {
		if calls++; calls > 1 {
			kill(killDeleted)
		}
		kill(killTaken)
		return store.note("", messages)
	}, after: func() { kill(killPublished) }}, RelayConfig{Batch: 20, Poll: 10 * time.Millisecond, Lease: 200 * time.Millisecond})
	ctx, stop := child.Context()
	defer stop()
	return relay.Run(ctx)
}

// note writes down what is published.
func (s *Store) note(_ string, messages []*message.Message) (err error) {
	for _, msg := range messages {
		_, also := s.db.Exec(context.Background(), s.db.Statement(`INSERT INTO published (id) VALUES (?)`), msg.UUID)
		err = errors.Join(err, also)
	}
	return err
}

// Whenever a relay is killed: nothing is lost, and only what was in hand is published again.
func TestKilled(t *testing.T) {
	const n, kills = 200, 6
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		s := openStore(t, d, address)
		testkit.Must(s.db.DB().Exec(`CREATE TABLE published (id VARCHAR(64) NOT NULL)`))
		fill(t, s, "orders", n)
		o := order{Address: address, Driver: child.Driver(d.Name)}
		for i := range kills {
			o.Kill, o.After = []string{killTaken, killPublished, killDeleted}[i%3], 1+i%2
			cmd := child.Command(t, o)
			stdin := testkit.Must(cmd.StdinPipe())
			inTime := time.AfterFunc(patience, func() { _ = stdin.Close() })
			err := cmd.Run()
			inTime.Stop()
			testkit.Require(t, err != nil, "the relay was not killed %s", o.Kill)
		}
		start(t, s, &outbox{before: s.note}, RelayConfig{})
		eventually(t, "nothing is kept", func() bool { return kept(t, s) == 0 })
		var all, different int
		testkit.NoError(t, s.db.DB().QueryRow(`SELECT COUNT(*), COUNT(DISTINCT id) FROM published`).Scan(&all, &different))
		testkit.Check(t, different == n && all-different <= kills*20,
			"%d different of %d are published %d times", different, n, all)
	})
}
