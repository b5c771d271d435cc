package sqlproxy_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/watermill-spillway/spillway/internal/sqlstore/sqlproxy"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// owner notes what it hears, and refuses what it is told to.
type owner struct {
	before []string
	failed []error
}

var errRefused, errCommitted = errors.New("refused"), errors.New("committed")

func (o *owner) Before(_ context.Context, statement string, _ []driver.NamedValue) error {
	o.before = append(o.before, statement)
	if statement == "refused" {
		return errRefused
	}
	return nil
}
func (o *owner) Failed(_ context.Context, err error) error {
	o.failed = append(o.failed, err)
	return err
}
func (*owner) Committed() error { return errCommitted }

func begin(t *testing.T, f *fake) (*sqlproxy.Transaction, *owner, *sql.Conn, *sql.DB) {
	t.Helper()
	db := sql.OpenDB(f)
	t.Cleanup(func() { _ = db.Close() })
	conn := testkit.Must(db.Conn(t.Context()))
	o := &owner{}
	ctx, cancel := context.WithCancel(t.Context())
	s := testkit.Must(new(sqlproxy.Pool).Begin(ctx, conn, o))
	cancel() // it outlives that
	time.Sleep(time.Millisecond)
	return s, o, conn, db
}

// What the user says goes to the connection, and what begins and ends does not. The owner knows of every statement.
func TestTransaction(t *testing.T) {
	f := &fake{}
	s, o, conn, db := begin(t, f)
	tx := s.Tx()
	testkit.Must(tx.Exec("plain"))
	testkit.Must(tx.Exec("prepared", 1))
	stmt := testkit.Must(tx.Prepare("kept"))
	testkit.Must(stmt.Exec())
	var n int
	testkit.NoError(t, tx.QueryRow("query").Scan(&n))
	testkit.Equal(t, "n", n, 1)
	testkit.NoError(t, tx.QueryRow("query prepared", 1).Scan(&n))
	testkit.Equal(t, "n", n, 1)
	testkit.Is(t, testkit.Err(tx.Exec("refused")), errRefused)
	testkit.Is(t, testkit.Err(tx.Exec("bad")), errBad)
	testkit.Is(t, tx.Commit(), errCommitted)
	left := s.Stop()
	testkit.Check(t, left.Ended && !left.Reading, "%+v", left)
	s.Close()
	testkit.Equal(t, "said", strings.Join(f.said, ", "),
		"plain, prepared, close prepared, kept, query, query prepared, close query prepared, bad, close kept")
	testkit.Equal(t, "the owner heard of", strings.Join(slices.Compact(o.before), ", "),
		"plain, prepared, kept, query, query prepared, refused, bad")
	testkit.Check(t, len(o.failed) == 1 && o.failed[0] == errBad, "the owner heard of %v", o.failed)
	testkit.NoError(t, conn.Close())
	testkit.Check(t, db.Stats().Idle == 1 && !f.closed, "the connection is lost")
}

// Rows that are open are known, and their late errors too.
func TestRows(t *testing.T) {
	s, o, conn, _ := begin(t, &fake{})
	defer func() { s.Close(); _ = conn.Close() }()
	rows := testkit.Must(s.Tx().Query("late"))
	for rows.Next() {
	}
	testkit.Check(t, rows.Err() == errBad && len(o.failed) == 1, "%v, %v", rows.Err(), o.failed)
	testkit.NoError(t, rows.Close())
	rows = testkit.Must(s.Tx().Query("open"))
	testkit.NoError(t, rows.Err())
	left := s.Stop()
	testkit.Check(t, left.Reading && !left.Ended, "%+v", left)
	testkit.Check(t, !rows.Next() && errors.Is(rows.Err(), sql.ErrTxDone),
		"rows are read after the end: %v", rows.Err())
}

// Once stopped, a transaction lets nothing through, and what was running has ended.
func TestStop(t *testing.T) {
	f := &fake{running: make(chan struct{}), resume: make(chan struct{})}
	s, _, conn, _ := begin(t, f)
	stmt := testkit.Must(s.Tx().Prepare("kept"))
	ran := make(chan error, 1)
	go func() { _, err := s.Tx().Exec("wait"); ran <- err }()
	<-f.running
	stopped := make(chan sqlproxy.State)
	go func() { stopped <- s.Stop() }()
	select {
	case <-stopped:
		t.Error("stopped under a statement")
	case <-time.After(20 * time.Millisecond):
	}
	close(f.resume)
	left := <-stopped
	testkit.Check(t, !left.Ended && !left.Reading, "%+v", left)
	testkit.NoError(t, <-ran)
	for what, do := range map[string]func() error{
		"exec":     func() error { _, err := s.Tx().Exec("late"); return err },
		"argument": func() error { _, err := s.Tx().Exec("late", 1); return err },
		"query":    func() error { _, err := s.Tx().Query("late"); return err },
		"prepare":  func() error { _, err := s.Tx().Prepare("late"); return err },
		"kept":     func() error { _, err := stmt.Exec(); return err },
	} {
		err := do()
		testkit.Check(t, errors.Is(err, sql.ErrTxDone), "%s: %v", what, err)
	}
	s.Close()
	s.Close()
	testkit.Equal(t, "said", strings.Join(f.said, " "), "wait close kept")
	_ = conn.Close()
}

// A driver that panics keeps no caller waiting, and its connection is not used again.
func TestPanic(t *testing.T) {
	f := &fake{}
	s, _, conn, db := begin(t, f)
	func() {
		defer func() {
			testkit.Check(t, recover() == "boom", "the panic was swallowed")
		}()
		_, _ = s.Tx().Exec("panic")
	}()
	s.Close()
	_ = conn.Close()
	testkit.Check(t, f.closed && db.Stats().OpenConnections == 0, "the connection is used again")
}

func TestPlain(t *testing.T) {
	for statement, want := range map[string]bool{
		"SELECT 1": true, " \n\tselect 1": true, "Insert\nINTO x": true, "SELECT(1)": true, "SELECT *": true, "INSERT/**/INTO": true,
		"": false, "SELECT 1;": false, "SELECT 1; COMMIT": false, "COMMIT": false, "/* SELECT */ COMMIT": false, "-- SELECT\nCOMMIT": false,
		"SELECTED": false, "SEL": false, "(SELECT 1)": false, "SELECT_1": false, "SELECT": false, "SELECTé": false, "INSERTS": false, "\uFEFFSELECT": false,
	} {
		testkit.Equal(t, statement, sqlproxy.Plain(statement, "SELECT", "INSERT"), want)
	}
}
