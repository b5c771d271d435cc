package crashlimit

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/child"
)

func TestMain(m *testing.M) {
	child.Main(order.consume)
	_ = mysql.SetLogger(&mysql.NopLogger{}) // of connections that tests cut
	goleak.VerifyTestMain(m)
}

const patience = testkit.Patience

var eventually = testkit.Eventually

// NewSQLStore is sqlmarks.NewStore, which imports this package.
var NewSQLStore func(context.Context, *sql.DB, string) (Store, error)

func storeOn(t testing.TB, db *sql.DB) Store {
	t.Helper()
	return testkit.Must(NewSQLStore(t.Context(), db, "shop"))
}

func newLimit(t testing.TB, config options) *Limit {
	t.Helper()
	if _, inMemory := config.Store.(*fake); !inMemory && config.within == 0 {
		config.within = patience // a disk that stands still is no outage
	}
	l := testkit.Must(build(config))
	l.self = rand.Text() // as a process of its own would be
	t.Cleanup(func() { _ = l.end() })
	return l
}

// end is stop for tests that look at its errors, or that go on with the limit.
func (l *Limit) end() error {
	l.closing.Store(true)
	return errors.Join(l.depart(), l.signOffIfIdle())
}

func newMessage(id string) *message.Message { return message.NewMessage(id, []byte("payload")) }

func callOf(msg *message.Message) *chain.Call { return &chain.Call{Msg: msg, Ctx: msg.Context()} }

func succeed(*message.Message) ([]*message.Message, error) { return nil, nil }

// within runs a test on a clock of its own, with a store in memory.
func within(t *testing.T, test func(*testing.T, *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newFake()) })
}

// begins is within, for a limit that has started.
func begins(t *testing.T, config options, test func(*testing.T, *fake, *Limit)) {
	t.Helper()
	within(t, func(t *testing.T, f *fake) { test(t, f, started(t, f, config)) })
}

// marks is within, for a limit that marks.
func marks(t *testing.T, config options, test func(*testing.T, *fake, *Limit)) {
	t.Helper()
	within(t, func(t *testing.T, f *fake) { test(t, f, afterCrash(t, f, config)) })
}
