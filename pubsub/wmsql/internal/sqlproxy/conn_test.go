package sqlproxy_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmsql/internal/sqlproxy"
)

// nesting is an owner that answers the transactions of its user, as savepoints would, and notes the sizes of arguments.
type nesting struct {
	owner
	conn *sqlproxy.Conn
	args []int
}

func (n *nesting) Before(statement string, args []driver.NamedValue) error {
	n.args = append(n.args, len(args))
	return n.owner.Before(statement, args)
}

func (n *nesting) Begin(driver.TxOptions) (driver.Tx, error) {
	return savepoint{n}, n.conn.Exec(context.Background(), "savepoint")
}

type savepoint struct{ n *nesting }

func (s savepoint) Commit() error { return nil }
func (s savepoint) Rollback() error {
	s.n.conn.Lock()
	defer s.n.conn.Unlock()
	return s.n.conn.Exec(context.Background(), "rollback")
}

func open(t *testing.T, life context.Context, f *fake, prepared map[string]driver.Stmt) *nesting {
	t.Helper()
	db := sql.OpenDB(f)
	conn := testkit.Must(db.Conn(t.Context()))
	n := &nesting{}
	n.conn = sqlproxy.Open(life, conn, n, prepared)
	t.Cleanup(func() { _ = n.conn.Close(); _ = conn.Close(); _ = db.Close() })
	return n
}

// What the user begins is the owner's to decide, and what was prepared stays prepared for the next Conn of the
// connection.
func TestNesting(t *testing.T) {
	f := &fake{}
	prepared := map[string]driver.Stmt{}
	for range 2 {
		n := open(t, t.Context(), f, prepared)
		tx := testkit.Must(n.conn.DB().Begin())
		testkit.Must(tx.Exec("prepared", 1, 2))
		testkit.NoError(t, tx.Rollback())
		testkit.Check(t, slices.Contains(n.args, 2), "the owner saw %v arguments", n.args)
	}
	testkit.Equal(t, "said", strings.Join(f.said, " "), "savepoint prepared rollback savepoint prepared rollback")
	testkit.Equal(t, "kept", len(prepared), 1)
}

// After End the user gets the owner's reason, the end of life interrupts, and a Conn that was closed touches nothing.
func TestEnd(t *testing.T) {
	f := &fake{}
	life, end := context.WithCancel(t.Context())
	n := open(t, life, f, nil)
	tx := testkit.Must(n.conn.DB().Begin())
	stmt := testkit.Must(tx.Prepare("kept"))
	end()
	testkit.Must(tx.Exec("ctx"))
	testkit.Check(t, f.ctx.Err() != nil, "a statement does not end with life")
	why := errors.New("why")
	n.conn.Lock()
	n.conn.End(why)
	n.conn.End(errors.New("later"))
	n.conn.Unlock()
	testkit.Is(t, testkit.Err(tx.Exec("late")), why)
	testkit.Is(t, testkit.Err(n.conn.DB().Begin()), why)
	testkit.NoError(t, n.conn.Close())
	testkit.NoError(t, errors.Join(stmt.Close(), tx.Commit()))
	testkit.Equal(t, "said", strings.Join(f.said, " "), "savepoint ctx")
}
