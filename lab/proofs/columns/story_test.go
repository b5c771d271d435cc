package columns_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
)

// story is a topic, and a database in which each message takes effect.
type history struct {
	*testing.T
	topic string
	db    *sql.DB
	gate  chan struct{} // handlers wait until it is closed; nil is open

	publish func() message.Publisher
	backlog func() func(context.Context, string) (int, error)
	letters func() map[string]int // by id; none while the broker is unavailable
}

func newHistory(t *testing.T) *history {
	t.Helper()
	s := &history{T: t, topic: "story-" + strings.ToLower(rand.Text()[:10]), db: databases.SQLite.New(t)}
	testkit.Must(s.db.Exec(`CREATE TABLE effects (id TEXT NOT NULL)`))
	return s
}

// run consumes the topic with one instance. Ids that begin with "bad" fail for good. The handler takes its time.
func (s *history) run(sub message.Subscriber, takes time.Duration) (stop func()) {
	s.Helper()
	dead := s.publish()
	s.Cleanup(func() { _ = dead.Close() })
	ch := testkit.Must(
		spillway.New(s.Context(), spillway.Config{Service: s.topic, DB: s.db, Publisher: dead, Logger: watermill.NopLogger{}}))
	return testkit.RunRouter(s.T, watermill.NopLogger{}, func(router *message.Router) {
		ch.Attach(router)
		router.AddConsumerHandler("billing", s.topic, sub, func(msg *message.Message) error {
			if s.gate != nil {
				<-s.gate
			}
			time.Sleep(takes)
			if strings.HasPrefix(msg.UUID, "bad") {
				return classify.Permanent(errors.New("never"))
			}
			_, err := idempotency.Tx(msg.Context()).Exec(`INSERT INTO effects (id) VALUES (?)`, msg.UUID)
			return err
		})
	})
}

// send publishes ids, each until the broker confirms it.
func (s *history) send(ids ...string) {
	s.Helper()
	pub := s.publish()
	defer func() { _ = pub.Close() }()
	for _, id := range ids {
		testkit.Eventually(s, "the broker takes "+id, func() bool { return pub.Publish(s.topic, message.NewMessage(id, []byte("v"))) == nil })
	}
}

func (s *history) effects() map[string]int {
	s.Helper()
	rows := testkit.Must(s.db.Query(`SELECT id, count(*) FROM effects GROUP BY id`))
	defer func() { _ = rows.Close() }()
	counts := map[string]int{}
	for rows.Next() {
		var id string
		var n int
		testkit.NoError(s, rows.Scan(&id, &n))
		counts[id] = n
	}
	return counts
}

// untilAll waits until each id took effect, or is a letter if it is bad, and nothing waits in the topic. No effect is
// doubled.
func (s *history) untilAll(ids []string) {
	s.Helper()
	place := func(id string) map[string]int {
		if strings.HasPrefix(id, "bad") {
			return s.letters()
		}
		return s.effects()
	}
	backlog := s.backlog()
	testkit.Eventually(s, "nothing waits", func() bool {
		n, err := backlog(s.Context(), s.topic)
		return err == nil && n == 0
	})
	for _, id := range ids {
		if place(id)[id] == 0 {
			s.Errorf("%q is lost", id)
		}
	}
	effects := s.effects()
	for id, n := range effects {
		if n > 1 || strings.HasPrefix(id, "bad") {
			s.Errorf("%q took effect %d times", id, n)
		}
	}
	s.Logf("%d messages: %d effects, %d letters", len(ids), len(effects), len(s.letters()))
}

func several(prefix string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s-%03d", prefix, i))
	}
	return ids
}
