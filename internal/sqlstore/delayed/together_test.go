package delayed

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
)

// Promise P1: messages that are put at the same time are all there, once, each with its topic, payload and delay. A
// message that the database refuses fails for its caller alone.
func TestStore_together(t *testing.T) {
	databases.Each(t, func(t *testing.T, d databases.Database, address string) {
		s := openStore(t, d, address)
		refuse := `ALTER TABLE spillway_delayed ADD CONSTRAINT refused CHECK (size < 5000)`
		if d.Name == "sqlite" {
			refuse = `CREATE TRIGGER refused BEFORE INSERT ON spillway_delayed WHEN NEW.size >= 5000 BEGIN SELECT RAISE(ABORT, 'refused'); END`
		}
		testkit.Must(s.DB().Exec(refuse))
		const n = 120
		want := map[string]bool{}
		var all sync.WaitGroup
		for i := range n {
			msg, refused := newMessage(numberedID(i)), i%17 == 0
			switch {
			case refused:
				msg.Payload = message.Payload(strings.Repeat("x", 5000))
			case i%5 == 0:
				msg.Payload = nil
			}
			if !refused {
				want[fmt.Sprintf("%s topic-%d %q %d", msg.UUID, i%7, msg.Payload, i+1)] = true
			}
			all.Go(func() {
				err := s.Put(context.Background(), fmt.Sprint("topic-", i%7), msg, time.Duration(i+1)*time.Hour)
				testkit.Check(t, refused == (err != nil) && (err == nil || strings.Contains(err.Error(), "refused")),
					"message %d: %v", i, err)
			})
		}
		all.Wait()
		got := map[string]bool{}
		testkit.NoError(t, s.Rows(t.Context(), func() {}, func(rows *sql.Rows) error {
			var id, topic, payload []byte
			var wait int64
			err := rows.Scan(&id, &topic, &payload, &wait)
			got[fmt.Sprintf("%s %s %q %.0f", id, topic, payload, database.Microseconds(wait).Hours())] = true
			return err
		}, s.db.Statement(`SELECT id, topic, payload, due_at - now_us() FROM spillway_delayed`)))
		testkit.Check(t, maps.Equal(got, want), "stored are %v, want %v", got, want)
	})
}
