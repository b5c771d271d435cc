package wmsql_test

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

func TestSubscriberConfig(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		for field, change := range map[string]func(*wmsql.SubscriberConfig){
			"Schema":        func(c *wmsql.SubscriberConfig) { c.Schema = (*wsql.DefaultMySQLSchema)(nil) },
			"Schema ":       func(c *wmsql.SubscriberConfig) { c.Schema = b.stranger() },
			"Schema\t":      func(c *wmsql.SubscriberConfig) { c.Schema = embedded{b.stockSchema()} },
			"ConsumerGroup": func(c *wmsql.SubscriberConfig) { c.ConsumerGroup = strings.Repeat("g", 256) },
			"Batch":         func(c *wmsql.SubscriberConfig) { c.Batch = -1 },
			"PollInterval":  func(c *wmsql.SubscriberConfig) { c.PollInterval = -1 },
			"GapWait":       func(c *wmsql.SubscriberConfig) { c.GapWait = -1 },
		} {
			var config wmsql.SubscriberConfig
			change(&config)
			_, err := wmsql.NewSubscriber(t.Context(), b.db, config)
			testkit.Says(t, err, "SubscriberConfig.")
			testkit.Says(t, err, strings.TrimSpace(field))
		}
		closed := b.kind.Open(t, b.address)
		_ = closed.Close()
		for _, db := range []*sql.DB{nil, closed} {
			_, err := wmsql.NewSubscriber(t.Context(), db, wmsql.SubscriberConfig{})
			testkit.Check(t, err != nil, "a subscriber of a database that is %v", db)
		}
		_, subscribing := wmsql.NewSubscriber(nil, b.db, wmsql.SubscriberConfig{}) //lint:ignore SA1012 it is the test
		testkit.Says(t, subscribing, "the context is nil")
		_, publishing := wmsql.NewPublisher(nil, b.db, wmsql.PublisherConfig{}) //lint:ignore SA1012 it is the test
		testkit.Says(t, publishing, "the context is nil")
		sub := b.subscriber()
		testkit.Check(t, testkit.Err(sub.Backlog(t.Context(), b.topic+".none")) != nil, "the backlog of no table")
		testkit.Is(t, errors.Join(sub.Close(), sub.Close()), nil)
		testkit.Is(t, testkit.Err(sub.Subscribe(t.Context(), b.topic)), wmsql.ErrClosed)
	})
}

// Subscribe creates missing tables. On PostgreSQL a role that may not create any consumes those that exist.
func TestSubscribeCreatesTables(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		for what, topic := range map[string]string{"both": b.topic + ".new", "that of positions": b.outs} {
			_, err := b.subscriber().Subscribe(t.Context(), topic)
			testkit.Check(t, err == nil, "%s: %v", what, err)
		}
		if !b.isPostgres() {
			return
		}
		role := "reader_" + strings.ToLower(rand.Text()[:8])
		b.exec(`CREATE ROLE ` + role + ` LOGIN PASSWORD '` + role + `'`)
		t.Cleanup(func() { b.exec(`DROP OWNED BY ` + role); b.exec(`DROP ROLE ` + role) })
		address := testkit.Must(url.Parse(b.address))
		schema := `"` + address.Query().Get("search_path") + `"`
		b.exec(`GRANT USAGE ON SCHEMA ` + schema + ` TO ` + role)
		b.exec(`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ` + schema + ` TO ` + role)
		address.User = url.UserPassword(role, role)
		plain := b.over(b.kind.Open(t, address.String()))
		b.publish("x")
		b.receive(b.messages(plain.subscriber()), "x").Ack()
		_, err := plain.subscriber().Subscribe(t.Context(), b.topic+".other")
		testkit.Check(t, err != nil, "a role that may create no table subscribes to one that is not there")
	})
}

// A server that is busy for seconds when a group registers makes the subscription late, and does not make it fail.
func TestRegisterOnABusyServer(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.publish("a")
		tx := b.begin()
		testkit.Must(tx.Exec(b.sql(`LOCK TABLE `+b.offsetsTable()+` IN SHARE MODE`,
			`SELECT * FROM `+b.offsetsTable()+` FOR UPDATE`)))
		time.AfterFunc(2500*time.Millisecond, func() { _ = tx.Rollback() })
		b.receive(b.messages(b.subscriber()), "a").Ack()
		b.drained()
	})
}
