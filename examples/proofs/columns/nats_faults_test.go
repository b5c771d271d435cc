package columns_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway"
	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/examples/nats/jetstream"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/services"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

// Promises P1 and P7: the durable consumer is deleted twice while messages flow. The consumer that is made in its place
// begins with the oldest message: everything comes again. By id: each good message took effect once, each bad one is a
// letter, none is lost. It runs before the parallel tests, which restart the server.
func TestNATSConsumerDeleted(t *testing.T) {
	const all, deletions = 120, 2
	b := natsBroker{services.NATS(t), wmnats.GobMarshaler{}}
	topic := "conformance-" + strings.ToLower(rand.Text()[:10])
	for _, each := range []string{topic, topic + ".dlq", topic + ".invalid"} {
		b.createStream(t, each)
	}
	db := effectsTable(t)
	ctx := context.Background()
	keys := testkit.Must(idempotency.NewStore(ctx, db, ""))
	dead, live := b.publisher(t), b.publisher(t)
	ch := testkit.Must(spillway.New(ctx, spillway.Config{Publisher: dead, Idempotency: keys}))
	router := testkit.Must(
		message.NewRouter(message.RouterConfig{CloseTimeout: 30 * time.Second}, watermill.NopLogger{}))
	ch.Attach(router)
	router.AddConsumerHandler("billing", topic, b.subscriber(t, "billing", b.url), func(msg *message.Message) error {
		if strings.HasPrefix(msg.UUID, "bad") {
			return classify.Permanent(fmt.Errorf("never"))
		}
		tx := idempotency.Tx(msg.Context())
		_, err := tx.Exec("INSERT INTO effects (id) VALUES (?)", msg.UUID)
		return err
	})
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	<-router.Running()
	t.Cleanup(func() {
		if err := router.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = dead.Close()
		_ = live.Close()
	})

	var good, bad []string
	for i := range all {
		id := fmt.Sprintf("good-%d", i)
		if i%10 == 3 {
			id = fmt.Sprintf("bad-%d", i)
			bad = append(bad, id)
		} else {
			good = append(good, id)
		}
		testkit.NoError(t, live.Publish(topic, message.NewMessage(id, []byte(id))))
		if i%(all/deletions) == all/deletions/2 {
			testkit.Eventually(t, "the consumer is there, and deleted", func() bool {
				deleted := false
				b.admin(t, func(js nats.JetStreamContext) error {
					deleted = js.DeleteConsumer(jetstream.Name(topic), "billing") == nil
					return nil
				})
				return deleted
			})
		}
	}
	testkit.Eventually(t, "all good messages took effect", func() bool { return len(effectsIn(t, db)) == len(good) }, func() string {
		return fmt.Sprint(effectsIn(t, db))
	})
	backlog := b.subscriber(t, "billing", b.url)
	testkit.Eventually(t, "nothing is left in the source", func() bool {
		left, err := backlog.Backlog(ctx, topic)
		return err == nil && left == 0
	})
	for _, id := range good {
		if n := effectsIn(t, db)[id]; n != 1 {
			t.Errorf("%q took effect %d times", id, n)
		}
	}
	letters := map[string]bool{}
	sub := b.subscriber(t, "reader", b.url)
	incoming := testkit.Must(sub.Subscribe(ctx, topic+".dlq"))
	for len(letters) < len(bad) {
		select {
		case msg := <-incoming:
			letters[msg.UUID] = true
			msg.Ack()
		case <-time.After(testkit.Patience):
			t.Fatalf("letters of %v, and %d are due", letters, len(bad))
		}
	}
	for _, id := range bad {
		if !letters[id] {
			t.Errorf("%q is lost", id)
		}
	}
}

func effectsTable(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "effects.db")+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	testkit.Must(db.Exec("CREATE TABLE effects (id TEXT)"))
	return db
}

func effectsIn(t *testing.T, db *sql.DB) map[string]int {
	t.Helper()
	rows := testkit.Must(db.Query("SELECT id, COUNT(*) FROM effects GROUP BY id"))
	defer func() { _ = rows.Close() }()
	effects := map[string]int{}
	for rows.Next() {
		var id string
		var n int
		testkit.NoError(t, rows.Scan(&id, &n))
		effects[id] = n
	}
	testkit.NoError(t, rows.Err())
	return effects
}
