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

	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/pubsub/wmsql/internal/sqlproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// owner notes what it hears, and refuses what it is told to.
type owner struct {
	before []string
	failed []error
}

var errRefused = errors.New("refused")

func (o *owner) Before(statement string, _ []driver.NamedValue) error {
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

// What the user says goes to the connection, and what begins and ends does not. The owner knows of every statement.
func TestTransaction(t *testing.T) {
	f := &fake{}
	o := open(t, t.Context(), f, nil)
	tx := testkit.Must(o.conn.DB().BeginTx(t.Context(), nil))
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
	testkit.NoError(t, tx.Commit())
	testkit.NoError(t, o.conn.Close())
	testkit.Equal(t, "said", strings.Join(f.said, ", "),
		"savepoint, plain, prepared, close prepared, kept, query, query prepared, close query prepared, bad, close kept")
	testkit.Equal(t, "the owner heard of", strings.Join(slices.Compact(o.before), ", "),
		"plain, prepared, kept, query, query prepared, refused, bad")
	testkit.Check(t, len(o.failed) == 1 && o.failed[0] == errBad, "the owner heard of %v", o.failed)
}

// Rows that are open are known, and their late errors too.
func TestRows(t *testing.T) {
	o := open(t, t.Context(), &fake{}, nil)
	tx := testkit.Must(o.conn.DB().BeginTx(t.Context(), nil))
	rows := testkit.Must(tx.Query("late"))
	for rows.Next() {
	}
	testkit.Check(t, rows.Err() == errBad && len(o.failed) == 1, "%v, %v", rows.Err(), o.failed)
	testkit.NoError(t, rows.Close())
	rows = testkit.Must(tx.Query("open"))
	testkit.NoError(t, rows.Err())
	o.conn.Lock()
	testkit.Check(t, o.conn.Reading(), "no rows are open")
	o.conn.End(sql.ErrTxDone)
	o.conn.Unlock()
	testkit.Check(t, !rows.Next() && errors.Is(rows.Err(), sql.ErrTxDone), "rows are read after the end: %v", rows.Err())
	testkit.NoError(t, rows.Close())
}

// Once locked and ended, a Conn lets nothing through, and what was running has ended.
func TestStop(t *testing.T) {
	f := &fake{running: make(chan struct{}), resume: make(chan struct{})}
	o := open(t, t.Context(), f, nil)
	tx := testkit.Must(o.conn.DB().BeginTx(t.Context(), nil))
	stmt := testkit.Must(tx.Prepare("kept"))
	ran := make(chan error, 1)
	go func() { _, err := tx.Exec("wait"); ran <- err }()
	<-f.running
	testkit.Check(t, !o.conn.TryLock(), "locked under a statement")
	locked := make(chan struct{})
	go func() { o.conn.Lock(); close(locked) }()
	select {
	case <-locked:
		t.Error("locked under a statement")
	case <-time.After(20 * time.Millisecond):
	}
	close(f.resume)
	<-locked
	o.conn.End(sql.ErrTxDone)
	o.conn.Unlock()
	testkit.NoError(t, <-ran)
	for what, do := range map[string]func() error{
		"exec":     func() error { _, err := tx.Exec("late"); return err },
		"argument": func() error { _, err := tx.Exec("late", 1); return err },
		"query":    func() error { _, err := tx.Query("late"); return err },
		"prepare":  func() error { _, err := tx.Prepare("late"); return err },
		"kept":     func() error { _, err := stmt.Exec(); return err },
	} {
		err := do()
		testkit.Check(t, errors.Is(err, sql.ErrTxDone), "%s: %v", what, err)
	}
	testkit.Equal(t, "said", strings.Join(f.said, " "), "savepoint wait")
}

// A driver that panics keeps no caller waiting, and nothing is closed on its connection.
func TestPanic(t *testing.T) {
	f := &fake{}
	o := open(t, t.Context(), f, nil)
	tx := testkit.Must(o.conn.DB().BeginTx(t.Context(), nil))
	func() {
		defer func() {
			testkit.Check(t, recover() == "boom", "the panic was swallowed")
		}()
		_, _ = tx.Exec("panic")
	}()
	testkit.Check(t, o.conn.TryLock(), "the Conn stays locked")
	o.conn.Unlock()
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
