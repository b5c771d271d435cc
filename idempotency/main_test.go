package idempotency_test

import (
	"database/sql"
	"errors"
	"runtime"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// storeOn is the store in db of the service shop, whatever the database is.
func storeOn(db *sql.DB) idempotency.Store { return onSQLite.store(db) }

func newReceiver(t testing.TB, store idempotency.Store, config idempotency.ReceiverConfig) *idempotency.Receiver {
	t.Helper()
	if config.Consumer == "" {
		config.Consumer = "billing"
	}
	return testkit.Must(idempotency.NewReceiver(store, config))
}

func count(t testing.TB, db *sql.DB, table string) (n int) {
	t.Helper()
	testkit.NoError(t, db.QueryRow(`SELECT count(*) FROM `+table).Scan(&n))
	return n
}

func class(err error) classify.Class { return (*classify.Classifier)(nil).Classify(err).Class }

func reason(err error) string { return (*classify.Classifier)(nil).Classify(err).Reason }

func newMessage(id string) *message.Message { return message.NewMessage(id, []byte("payload")) }

var errBoom = errors.New("boom")

// failures are the ways in which a handler ends without success.
var failures = map[string]message.HandlerFunc{
	"error":  func(*message.Message) ([]*message.Message, error) { return []*message.Message{newMessage("")}, errBoom },
	"panic":  func(*message.Message) ([]*message.Message, error) { panic(errBoom) },
	"goexit": func(*message.Message) ([]*message.Message, error) { runtime.Goexit(); return nil, nil },
	"nack": func(msg *message.Message) ([]*message.Message, error) {
		msg.Nack()
		return []*message.Message{newMessage("")}, nil
	},
	"nil": func(*message.Message) ([]*message.Message, error) { return []*message.Message{nil}, nil },
}

// recorded is what a claim found of a key that was applied before.
func recorded(c idempotency.Claim) (outputs []byte, done bool) {
	record := c.Recorded()
	if record == nil {
		return nil, false
	}
	return record.Outputs, true
}
