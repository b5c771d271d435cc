package letters_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/watermill-spillway/spillway/internal/testkit"
	"github.com/watermill-spillway/spillway/redrive/internal/fixture"

	"modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/redrive/letters"
)

// Feature D6: on SQLite, too, a letter that is larger than the database takes is refused as too large.
func TestStore_sqliteTooLarge(t *testing.T) {
	db := sqliteFile.Create(t)()
	db.SetMaxOpenConns(1)
	store := storeOn(t, db)
	conn, err := db.Conn(t.Context())
	testkit.NoError(t, err)
	const limitLength = 0 // SQLITE_LIMIT_LENGTH
	testkit.Must(sqlite.Limit(conn, limitLength, 100_000))
	testkit.NoError(t, conn.Close())
	err = store.Publish("orders.dlq", letter("1", strings.Repeat("x", 200_000)))
	if !errors.Is(err, classify.ErrTooLarge) || !(*classify.Classifier)(nil).IsTooLarge(err) {
		t.Error(err)
	}
	publish(t, store, "orders.dlq", letter("1", "x"))
}

// Missing arguments are errors that say what is missing.
func TestStore_nilArguments(t *testing.T) {
	var none context.Context
	var nowhere *letters.Store
	for _, s := range []*letters.Store{newStore(t), nowhere} {
		ctx := none
		if s == nil {
			ctx = t.Context()
		}
		for name, call := range map[string]func() error{
			"List":    func() error { _, err := s.List(ctx, letters.Filter{}); return err },
			"Count":   func() error { _, err := s.Count(ctx, letters.Filter{}); return err },
			"Groups":  func() error { _, err := s.Groups(ctx, letters.Filter{}); return err },
			"Take":    func() error { _, err := fixture.Take(ctx, s, letters.Filter{}, time.Hour, 1); return err },
			"Mark":    func() error { return fixture.Mark(ctx, s, fixture.Taken{}, letters.StatusWaiting, letters.Act{}) },
			"Release": func() error { return fixture.Release(ctx, s, fixture.Taken{}) },
			"Renew":   func() error { _, err := fixture.Renew(ctx, s, time.Hour, fixture.Taken{}); return err },
			"Free":    func() error { _, err := s.Inside().Free(ctx, letters.Filter{}, 1); return err },
			"Lease":   func() error { _, err := fixture.Lease(ctx, s, letters.Filter{}, nil, time.Hour); return err },
			"LastSeq": func() error { _, err := s.Inside().LastSeq(ctx); return err },
			"Publish": func() error { return s.Publish("orders.dlq", nil) },
			"Collect": func() error { return s.Collect(nil, "orders.dlq")(nil) },
		} {
			if err := call(); err == nil || !strings.Contains(err.Error(), "is nil") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
