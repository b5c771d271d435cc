package wmsql_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"

	"github.com/watermill-spillway/spillway/pubsub/wmsql"
)

func TestSubscriberConfig(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		for field, change := range map[string]func(*wmsql.SubscriberConfig){
			"Schema":        func(c *wmsql.SubscriberConfig) { c.Schema = (*wsql.DefaultMySQLSchema)(nil) },
			"Schema ":       func(c *wmsql.SubscriberConfig) { c.Schema = b.stranger() },
			"ConsumerGroup": func(c *wmsql.SubscriberConfig) { c.ConsumerGroup = strings.Repeat("g", 256) },
			"Batch":         func(c *wmsql.SubscriberConfig) { c.Batch = -1 },
			"NackBackoff":   func(c *wmsql.SubscriberConfig) { c.NackBackoff = -1 },
			"PollInterval":  func(c *wmsql.SubscriberConfig) { c.PollInterval = -1 },
			"GapWait":       func(c *wmsql.SubscriberConfig) { c.GapWait = -1 },
		} {
			var config wmsql.SubscriberConfig
			change(&config)
			if _, err := wmsql.NewSubscriber(t.Context(), b.db, config); err == nil || !strings.Contains(err.Error(), "SubscriberConfig.") || !strings.Contains(err.Error(), strings.TrimSpace(field)) {
				t.Errorf("%s: %v", field, err)
			}
		}
		if _, err := wmsql.NewSubscriber(t.Context(), nil, wmsql.SubscriberConfig{}); err == nil {
			t.Error("a subscriber of no database")
		}
		closed := b.open(t)
		_ = closed.Close()
		if _, err := wmsql.NewSubscriber(t.Context(), closed, wmsql.SubscriberConfig{}); err == nil {
			t.Error("the database cannot be asked")
		}
	})
}

// Subscribe creates the tables that are missing. On PostgreSQL a role that may not create any consumes those that
// exist.
func TestSubscribeCreatesTables(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench, s server) {
		for what, topic := range map[string]string{"both": b.topic + ".new", "that of positions": b.outs} {
			if _, err := b.subscriber().Subscribe(t.Context(), topic); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if !b.isPostgres() {
			return
		}
		role := "reader_" + strings.ToLower(rand.Text()[:8])
		b.exec(`CREATE ROLE ` + role + ` LOGIN PASSWORD '` + role + `'`)
		t.Cleanup(func() { b.exec(`DROP OWNED BY ` + role); b.exec(`DROP ROLE ` + role) })
		var schema string
		if err := b.db.QueryRow(`SELECT current_schema()`).Scan(&schema); err != nil {
			t.Fatal(err)
		}
		b.exec(`GRANT USAGE ON SCHEMA "` + schema + `" TO ` + role)
		b.exec(`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "` + schema + `" TO ` + role)
		plain := *b
		plain.db = openAt(t, s.name, s.to("", role))
		messages := b.messages(plain.subscriber())
		b.publish("x")
		if msg := <-messages; msg == nil || !msg.Ack() {
			t.Error("no message")
		}
		if _, err := plain.subscriber().Subscribe(t.Context(), b.topic+".other"); err == nil {
			t.Error("a role that may create no table subscribes to one that is not there")
		}
	})
}

func TestSubscribeErrors(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		sub := b.subscriber()
		if _, err := sub.Backlog(t.Context(), b.topic+".none"); err == nil {
			t.Error("the backlog of no table")
		}
		messages := b.messages(sub)
		if err := errors.Join(sub.Close(), sub.Close()); err != nil {
			t.Error(err)
		}
		if _, open := <-messages; open {
			t.Error("a message after Close")
		}
		if _, err := sub.Subscribe(t.Context(), b.topic); !errors.Is(err, wmsql.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		messages, err := b.subscriber().Subscribe(ctx, b.topic)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, open := <-messages; open {
			t.Error("a message after the context ended")
		}
	})
}

// Bad input: a nil context is an error with a sentence.
func TestNilContext(t *testing.T) {
	_, subscribing := wmsql.NewSubscriber(nil, nil, wmsql.SubscriberConfig{}) //lint:ignore SA1012 it is the test
	_, publishing := wmsql.NewPublisher(nil, nil, wmsql.PublisherConfig{})    //lint:ignore SA1012 it is the test
	for what, err := range map[string]error{"NewSubscriber": subscribing, "NewPublisher": publishing} {
		if err == nil || !strings.Contains(err.Error(), "the context is nil") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A server that is busy for seconds when a group registers makes the subscription late, and does not make it fail.
func TestRegisterOnABusyServer(t *testing.T) {
	onServers(t, func(t *testing.T, b *bench, s server) {
		b.publish("a")
		tx, err := b.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		lock := b.sql(`LOCK TABLE "watermill_offsets_`+b.topic+`" IN SHARE MODE`, "SELECT * FROM `watermill_offsets_"+b.topic+"` FOR UPDATE")
		if _, err := tx.Exec(lock); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(2500*time.Millisecond, func() { _ = tx.Rollback() })
		messages := b.messages(b.subscriber())
		b.receive(messages, "a").Ack()
		b.drained()
	})
}
