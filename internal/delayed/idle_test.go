package delayed

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"slices"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/watermill-spillway/spillway/internal/testkit/databases"
)

// spy is a driver that remembers what it is asked.
type spy struct {
	driver.Connector
	mu    sync.Mutex
	asked []string
}

func (s *spy) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := s.Connector.Connect(ctx)
	return &spyConn{conn, s}, err
}

func (s *spy) note(query string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, query)
}

func (s *spy) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

type spyConn struct {
	driver.Conn
	spy *spy
}

func (c *spyConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.spy.note(query)
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *spyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.spy.note(query)
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *spyConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.spy.note("BEGIN")
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

type connector struct {
	dsn    string
	driver driver.Driver
}

func (c connector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c connector) Driver() driver.Driver                        { return c.driver }

// An idle relay asks one thing per Poll: of an empty store, of one in which nothing is due yet, and of one whose rows
// others have.
func TestIdle(t *testing.T) {
	d := databases.SQLite
	address := d.Create(t)
	plain := d.Open(t, address)
	watched := &spy{Connector: connector{address, plain.Driver()}}
	db := sql.OpenDB(watched)
	t.Cleanup(func() { _ = db.Close() })
	s, other := on(t, db), on(t, plain)
	const poll = 20 * time.Millisecond
	start(t, s, &outbox{}, RelayConfig{Poll: poll})
	for _, what := range []string{"empty", "nothing is due", "leased"} {
		switch what {
		case "nothing is due":
			put(t, other, "orders", newMessage("1"), time.Hour)
		case "leased":
			if _, err := plain.Exec(`UPDATE spillway_delayed SET due_at = 0, token = 'another'`); err != nil {
				t.Fatal(err)
			}
		}
		for !slices.Contains(watched.take(), s.statements.next) { // what a start and a change ask is over
			time.Sleep(poll)
		}
		time.Sleep(2 * poll)
		begun := time.Now()
		watched.take()
		var asked []string
		for len(asked) == 0 { // a busy machine asks late
			time.Sleep(10 * poll)
			asked = watched.take()
		}
		// A look that takes long on a busy machine is followed by the question what time it is, which reads no table.
		asked = slices.DeleteFunc(asked, func(query string) bool { return query == s.statements.now })
		if most := int(time.Since(begun)/poll) + 1; len(asked) > most {
			t.Errorf("%s: %d statements in %s", what, len(asked), time.Since(begun))
		}
		for _, query := range asked {
			if query != s.statements.next {
				t.Errorf("%s: %s", what, query)
			}
		}
	}
}
