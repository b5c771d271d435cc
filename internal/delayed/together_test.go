package delayed

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/internal/testkit/databases"
)

// Promise P1: messages that are put at the same time are all there, once, each with its topic, payload and delay. A
// message that the database refuses fails for its caller alone.
func TestStore_together(t *testing.T) {
	for _, d := range databases.All {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, d, d.Create(t))
			refuse := `ALTER TABLE spillway_delayed ADD CONSTRAINT refused CHECK (size < 5000)`
			if d.Name == "sqlite" {
				refuse = `CREATE TRIGGER refused BEFORE INSERT ON spillway_delayed WHEN NEW.size >= 5000 BEGIN SELECT RAISE(ABORT, 'refused'); END`
			}
			testkit.Must(s.DB().Exec(refuse))
			const n, callers = 120, 40
			topic := func(i int) string { return fmt.Sprint("topic-", i%5) }
			after := func(i int) time.Duration { return time.Duration(i+1) * time.Hour }
			var all sync.WaitGroup
			for c := range callers {
				all.Go(func() {
					for i := c; i < n; i += callers {
						msg, refused := newMessage(numberedID(i)), i%17 == 0
						if i%5 == 0 {
							msg.Payload = nil
						}
						if refused {
							msg.Payload = message.Payload(strings.Repeat("x", 5000))
						}
						err := s.Put(context.Background(), topic(i), msg, after(i))
						if refused != (err != nil) || err != nil && !strings.Contains(err.Error(), "refused") {
							t.Errorf("message %d: %v", i, err)
						}
					}
				})
			}
			all.Wait()
			stored := 0
			err := s.rows(t.Context(), func() {}, func(rows *sql.Rows) error {
				stored++
				var i int
				var id, topicOf, payload []byte
				var wait int64
				if err := rows.Scan(&id, &topicOf, &payload, &wait); err != nil {
					return err
				}
				if _, err := fmt.Sscanf(string(id), "id-%d", &i); err != nil {
					return err
				}
				want, due := string(newMessage(string(id)).Payload), after(i)
				if i%5 == 0 {
					want = ""
				}
				if early := due - microseconds(wait); string(topicOf) != topic(i) || string(payload) != want || (payload == nil) != (i%5 == 0) || early < -time.Second || early > 20*time.Minute || i%17 == 0 {
					t.Errorf("message %d to %s, %q, in %s", i, topicOf, payload, microseconds(wait))
				}
				return nil
			}, s.db.Statement(`SELECT id, topic, payload, due_at - now_us() FROM spillway_delayed`))
			if err != nil || stored != n-(n+16)/17 {
				t.Errorf("%d are stored, %v", stored, err)
			}
		})
	}
}
