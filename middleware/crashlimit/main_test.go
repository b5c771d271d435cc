package crashlimit

import (
	"crypto/rand"
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/internal/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/database/postgres"
	"github.com/watermill-spillway/spillway/internal/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/testkit"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		child()
		return
	}
	_ = mysql.SetLogger(&mysql.NopLogger{}) // of connections that tests cut
	goleak.VerifyTestMain(m)
}

const patience = testkit.Patience

var eventually = testkit.Eventually

// testDatabase is one that a store can be on.
type testDatabase struct {
	name, driver string
	// create makes an empty one, and tells where it is.
	create func(testing.TB) (address string)
}

var databases = []testDatabase{
	{"sqlite", "sqlite", func(t testing.TB) string {
		return "file:" + filepath.Join(t.TempDir(), "test.db") + "?_pragma=journal_mode(wal)&_pragma=busy_timeout(2000)&_pragma=synchronous(normal)"
	}},
	{"postgres", "pgx", postgrestest.Schema},
	{"mariadb", "mysql", mysqltest.Database},
}

// open opens a pool as a process of its own would.
func (d testDatabase) open(t testing.TB, address string) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.driver, address)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxIdleConns(10)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// statement spells a statement with question marks.
func (d testDatabase) statement(text string) string {
	if d.driver == "pgx" {
		return postgres.Engine{}.Statement(text)
	}
	return text
}

func onEach(t *testing.T, test func(t *testing.T, d testDatabase, address string)) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			test(t, d, d.create(t))
		})
	}
}

func storeOn(t testing.TB, db *sql.DB) *Store {
	t.Helper()
	s, err := NewStore(t.Context(), db, "shop")
	if err != nil {
		t.Fatal(err)
	}
	s.timeout = patience // a disk that stands still is no outage
	return s
}

func newLimit(t testing.TB, config options) *Limit {
	t.Helper()
	if _, real := config.store.(*Store); real {
		config.within = patience
	}
	l, err := build(config)
	if err != nil {
		t.Fatal(err)
	}
	l.self = rand.Text() // as a process of its own would be
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func newMessage(id string) *message.Message { return message.NewMessage(id, []byte("payload")) }

func succeed(*message.Message) ([]*message.Message, error) { return nil, nil }
