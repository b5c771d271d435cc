package idempotency_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/idempotency"
)

// Promise P7: two deliveries of a message come in the same millisecond; the first fails, the second, which waited, is
// applied. The first is not told that its handler has committed, whatever statements that handler used.
func TestDuplicateAtTheSameTime(t *testing.T) {
	for name, c := range map[string]struct {
		open  func(testing.TB) *sql.DB
		store func(*sql.DB) idempotency.Store
		fails []string // the last one does
	}{
		"postgres": {openPostgres, storeOn,
			[]string{`SAVEPOINT own`, `DO $$BEGIN RAISE serialization_failure; END$$`}},
		"mysql": {openMySQL, storeOn,
			[]string{`SAVEPOINT own`, `SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213`}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReceiver(t, c.store(c.open(t)), idempotency.ReceiverConfig{})
			for i := range 50 {
				var failed atomic.Bool
				h := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
					if failed.Swap(true) {
						return nil, nil
					}
					for _, statement := range c.fails {
						if _, err := idempotency.Tx(msg.Context()).ExecContext(msg.Context(), statement); err != nil {
							return nil, err
						}
					}
					return nil, nil
				})
				errs := make(chan error, 2)
				for range 2 {
					go func() { _, err := h(newMessage(fmt.Sprint("m", i))); errs <- err }()
				}
				for range 2 {
					if err := <-errs; errors.Is(err, sql.ErrTxDone) {
						t.Fatalf("message %d: %v", i, err)
					}
				}
			}
		})
	}
}

func ofVersion(version string) *message.Message {
	msg := message.NewMessage("id of "+version, []byte("payload of "+version))
	msg.Metadata = message.Metadata{"key": "k", "version": version}
	return msg
}

// Features I4, I6: the outputs of each version have ids of their own, and a mark forgets those of its version alone.
func TestOutputsOfVersions(t *testing.T) {
	for name, c := range map[string]struct {
		open  func(testing.TB) *sql.DB
		store func(*sql.DB) idempotency.Store
	}{
		"sqlite":   {openWithEffects, storeOn},
		"postgres": {openPostgres, storeOn},
		"mysql":    {openMySQL, storeOn},
	} {
		t.Run(name, func(t *testing.T) {
			store := c.store(c.open(t))
			r := newReceiver(t, store, idempotency.ReceiverConfig{
				Key: idempotency.ByMetadata("key"), Version: idempotency.VersionMetadata("version"),
			})
			h := r.Middleware(func(*message.Message) ([]*message.Message, error) {
				return []*message.Message{message.NewMessage("", []byte("out"))}, nil
			})
			ids := map[string]string{}
			for _, version := range []string{"1", "2"} {
				out, err := h(ofVersion(version))
				if err != nil || len(out) != 1 {
					t.Fatal(out, err)
				}
				ids[version] = out[0].UUID
			}
			if ids["1"] == ids["2"] {
				t.Errorf("both have the id %s", ids["1"])
			}
			mark := func(version int64) {
				t.Helper()
				entry := idempotency.Entry{Key: idempotency.Key{Consumer: "shop/billing", ID: "k"}, Version: version, Versioned: true}
				if err := store.MarkPublished(context.Background(), entry); err != nil {
					t.Fatal(err)
				}
			}
			mark(1)
			if out, err := h(ofVersion("2")); err != nil || len(out) != 1 || out[0].UUID != ids["2"] {
				t.Errorf("after the mark of version 1: %v, %v", out, err)
			}
			mark(2)
			if out, err := h(ofVersion("2")); err != nil || len(out) != 0 {
				t.Errorf("after the mark of version 2: %v, %v", out, err)
			}
		})
	}
}
