package redrive_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/redrive"
)

// Promise P4: what List, Take and Drain read at once is bounded in bytes, at least one letter, and all letters come.
func TestStore_maxRead(t *testing.T) { onEach(t, testStore_maxRead) }

func testStore_maxRead(t *testing.T, on database) {
	db := on.create(t)()
	store, err := redrive.NewStore(redrive.StoreConfig{DB: db, MaxRead: 300_000})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 9 {
		size := 90_000
		if i == 4 {
			size = 400_000 // more than MaxRead alone
		}
		publish(t, store, "orders.dlq", letter(fmt.Sprint(i), strings.Repeat("x", size)))
	}
	var pages []int
	for f := (redrive.Filter{}); ; {
		page := list(t, store, f)
		if len(page) == 0 {
			break
		}
		pages, f.After = append(pages, len(page)), page[len(page)-1].Seq
	}
	if fmt.Sprint(pages) != "[3 1 1 3 1]" {
		t.Errorf("pages of %v letters", pages)
	}
	for _, want := range []int{3, 1, 1, 3, 1, 0} {
		if taken, err := store.Take(t.Context(), redrive.Filter{}, time.Hour, 100); err != nil || len(taken) != want {
			t.Fatalf("%d taken, %v, want %d", len(taken), err, want)
		}
	}
	if _, err := db.Exec(`UPDATE spillway_dead_letters SET leased_until = 0`); err != nil {
		t.Fatal(err)
	}
	out := &outbox{before: func(string, *message.Message) error {
		var n, bytes int
		err := db.QueryRow(`SELECT COUNT(*), COALESCE(SUM(LENGTH(payload)), 0) FROM spillway_dead_letters WHERE leased_until > 0`).Scan(&n, &bytes)
		if err != nil || n > 1 && bytes > 300_000 {
			t.Errorf("%d letters of %d bytes are in hand, %v", n, bytes, err)
		}
		return nil
	}}
	if r := drain(t, store, out, orders); r.Redriven != 9 {
		t.Errorf("%+v", r)
	}
	if _, err := redrive.NewStore(redrive.StoreConfig{DB: db, MaxRead: -1}); err == nil || !strings.Contains(err.Error(), "StoreConfig.MaxRead") {
		t.Error(err)
	}
}

// Feature D6, promise P1: a message of max_allowed_packet less 64 KiB is set aside with the longest story, and comes back as
// it was. A larger one goes to the queue's fallback.
func TestStore_mysqlLargestMessage(t *testing.T) {
	for _, settings := range []string{"parseTime=true", "interpolateParams=true"} {
		t.Run(settings, func(t *testing.T) {
			db := mysqltest.Open(t, mysqltest.With(mysqltest.Database(t), settings))
			store, fallback := storeOn(t, db), &outbox{}
			var packet int
			if err := db.QueryRow(`SELECT @@max_allowed_packet`).Scan(&packet); err != nil {
				t.Fatal(err)
			}
			queue, err := poison.NewQueue(store, poison.QueueConfig{Fallbacks: []poison.Sink{{Publisher: fallback}}})
			if err != nil {
				t.Fatal(err)
			}
			handler := queue.Middleware(func(*message.Message) ([]*message.Message, error) {
				return nil, classify.Permanent(errors.New(strings.Repeat("a long story ", 1<<20)))
			})
			for id, size := range map[string]int{"largest": packet - 64<<10, "larger": packet} {
				msg := message.NewMessage(id, bytes.Repeat([]byte{0}, size)) // an escaped NUL takes two bytes
				msg.Metadata.Set(poison.KeyOriginalTopic, "orders")
				if _, err := handler(msg); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}
			if n := len(fallback.all()); n != 1 || fallback.all()[0].msg.UUID != "larger" {
				t.Errorf("%d letters went to the fallback", n)
			}
			out := &outbox{}
			if r := drain(t, store, out, redrive.DrainConfig{Allow: []string{"repair"}, To: "repair", By: strings.Repeat("ann", 10_000)}); r.Redriven != 1 {
				t.Fatalf("%+v", r)
			}
			if got := out.all()[0].msg; got.UUID != "largest" || len(got.Payload) != packet-64<<10 {
				t.Errorf("%s of %d bytes came back", got.UUID, len(got.Payload))
			}
			list(t, store, status(redrive.StatusRedriven))
		})
	}
}

// Feature D6: on SQLite, too, a letter that is larger than the database takes is refused as too large.
func TestStore_sqliteTooLarge(t *testing.T) {
	db := sqliteFile.create(t)()
	db.SetMaxOpenConns(1)
	store := storeOn(t, db)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const limitLength = 0 // SQLITE_LIMIT_LENGTH
	if _, err := sqlite.Limit(conn, limitLength, 100_000); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	err = store.Publish("orders.dlq", letter("1", strings.Repeat("x", 200_000)))
	if !errors.Is(err, poison.ErrTooLarge) || !poison.IsTooLarge(err) {
		t.Error(err)
	}
	publish(t, store, "orders.dlq", letter("1", "x"))
}

// Missing arguments are errors that say what is missing.
func TestStore_nilArguments(t *testing.T) {
	var none context.Context
	var nowhere *redrive.Store
	for _, s := range []*redrive.Store{newStore(t), nowhere} {
		ctx := none
		if s == nil {
			ctx = t.Context()
		}
		for name, call := range map[string]func() error{
			"List":    func() error { _, err := s.List(ctx, redrive.Filter{}); return err },
			"Count":   func() error { _, err := s.Count(ctx, redrive.Filter{}); return err },
			"Groups":  func() error { _, err := s.Groups(ctx, redrive.Filter{}); return err },
			"Take":    func() error { _, err := s.Take(ctx, redrive.Filter{}, time.Hour, 1); return err },
			"Mark":    func() error { return s.Mark(ctx, redrive.Taken{}, redrive.StatusWaiting) },
			"Release": func() error { return s.Release(ctx, redrive.Taken{}) },
			"Drain":   func() error { _, err := s.Drain(ctx, &outbox{}, orders); return err },
			"Publish": func() error { return s.Publish("orders.dlq", nil) },
			"Collect": func() error { return s.Collect(nil, "orders.dlq")(nil) },
		} {
			if err := call(); err == nil || !strings.Contains(err.Error(), "is nil") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	h, err := redrive.NewHandler(redrive.HandlerConfig{Publisher: &outbox{}, Park: &outbox{}, Allow: []string{"orders"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Handle(nil); err == nil {
		t.Error("a nil message is an error")
	}
}
