package idempotency_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/database/mysql"
)

// Promise P7: a handler that ends the transaction, by its methods, in SQL or with a statement that commits before it runs,
// is told so, and set aside where something stayed or where it said that it had succeeded. What it wrote after that is
// rolled back, and the connection is as good as new for those behind it.
func TestMySQLHandlerEndsTransaction(t *testing.T) {
	inSQL := func(statements ...string) func(*sql.Tx) error {
		return func(tx *sql.Tx) (err error) {
			for _, statement := range statements {
				if _, failed := tx.Exec(statement); failed != nil {
					err = failed
				}
			}
			return err
		}
	}
	commit := func(tx *sql.Tx) error {
		if err := tx.Commit(); class(err) != classify.ClassPermanent || !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("the handler's commit: %v", err)
		}
		return nil // as of a handler that does not look
	}
	cause := classify.Transient(errors.New("boom"))
	for _, c := range []struct {
		name   string
		end    func(*sql.Tx) error
		result error
		rows   int
		class  classify.Class
	}{
		{"Commit, success", commit, nil, 0, classify.ClassPermanent},
		{"Rollback, success", (*sql.Tx).Rollback, nil, 0, classify.ClassPermanent},
		{"Commit, failure", commit, cause, 0, classify.ClassTransient},
		{"Rollback, failure", (*sql.Tx).Rollback, cause, 0, classify.ClassTransient},
		{"COMMIT, success", inSQL(`COMMIT`), nil, 1, classify.ClassPermanent},
		{"ROLLBACK, success", inSQL(`ROLLBACK`), nil, 0, classify.ClassPermanent},
		{"COMMIT, failure", inSQL(`COMMIT`), cause, 1, classify.ClassPermanent},
		{"ROLLBACK, failure", inSQL(`ROLLBACK`), cause, 0, classify.ClassTransient},
		{"CREATE TABLE, success", inSQL(`CREATE TABLE more (id INT)`), nil, 1, classify.ClassPermanent},
		{"CREATE TABLE, failure", inSQL(`CREATE TABLE more (id INT)`), cause, 1, classify.ClassPermanent},
		{"COMMIT and more", inSQL(`COMMIT`, `INSERT INTO effects VALUES ('more')`), nil, 1, classify.ClassPermanent},
		{"COMMIT and another", inSQL(`COMMIT`, `START TRANSACTION`, `INSERT INTO effects VALUES ('more')`), nil, 1, classify.ClassPermanent},
		{"LOCK TABLES and more", inSQL(`LOCK TABLES effects WRITE`, `INSERT INTO effects VALUES ('more')`), nil, 1, classify.ClassPermanent},
		{"ROLLBACK and more", inSQL(`ROLLBACK`, `INSERT INTO effects VALUES ('more')`), nil, 0, classify.ClassPermanent},
		{"ROLLBACK and more, failure", inSQL(`ROLLBACK`, `INSERT INTO effects VALUES ('more')`), cause, 0, classify.ClassTransient},
	} {
		for _, outputs := range [][]*message.Message{nil, {newMessage("out")}} {
			t.Run(fmt.Sprintf("%s, %d outputs", c.name, len(outputs)), func(t *testing.T) {
				db := openMySQL(t)
				db.SetMaxOpenConns(1)
				r := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{})
				out, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
					if _, err := effectMySQL(msg); err != nil {
						return nil, err
					}
					if err := c.end(idempotency.Tx(msg.Context())); err != nil {
						return nil, err
					}
					return outputs, c.result
				})(newMessage("m1"))
				if out != nil || class(err) != c.class || errors.Is(err, sql.ErrTxDone) != (c.class == classify.ClassPermanent) {
					t.Fatal(out, err)
				}
				if c.result != nil && !errors.Is(err, c.result) || c.rows > 0 && strings.Contains(err.Error(), "was rolled back") {
					t.Fatal(err)
				}
				wantRows(t, db, c.rows, c.rows)
				if _, err := r.Middleware(effectMySQL)(newMessage("m2")); err != nil {
					t.Fatal(err)
				}
				wantAutocommit(t, db)
			})
		}
	}
}

// wantAutocommit fails unless a pooled connection commits what is written without a transaction.
func wantAutocommit(t *testing.T, db *sql.DB) {
	t.Helper()
	var on, open int
	if err := db.QueryRow(`SELECT @@autocommit, @@in_transaction`).Scan(&on, &open); err != nil || on != 1 || open != 0 {
		t.Fatalf("autocommit is %d, in a transaction: %d, %v", on, open, err)
	}
}

// Promise P7, bad input: after a deadlock the transaction is gone. A handler that ignores the error and writes on is set
// aside, and nothing that it wrote stays; one that returns the error is tried again.
func TestMySQLDeadlock(t *testing.T) {
	for name, c := range map[string]struct {
		outputs []*message.Message
		ignores bool
	}{
		"ignored":               {nil, true},
		"ignored, with outputs": {[]*message.Message{message.NewMessage("", nil)}, true},
		"returned":              {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			db := openMySQL(t)
			for _, statement := range []string{
				`CREATE TABLE pair (id INT PRIMARY KEY, n INT)`, `INSERT INTO pair VALUES (1, 0), (2, 0)`,
				`CREATE TABLE heavy (id INT)`, // the server ends the transaction that wrote less
			} {
				if _, err := db.Exec(statement); err != nil {
					t.Fatal(err)
				}
			}
			r := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{})
			_, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				if _, err := effectMySQL(msg); err != nil {
					return nil, err
				}
				err := deadlock(t, db, idempotency.Tx(msg.Context()))
				if mysql.Number(err) != mysql.Deadlock {
					t.Errorf("no deadlock: %v", err)
				}
				if !c.ignores {
					return nil, err
				}
				if _, err := effectMySQL(msg); mysql.Number(err) != mysql.Deadlock {
					t.Errorf("a write after the deadlock: %v", err)
				}
				return c.outputs, nil
			})(newMessage("m1"))
			verdict := (*classify.Classifier)(nil).Classify(err)
			want := classify.ClassTransient
			if c.ignores {
				want = classify.ClassPermanent
			}
			if verdict.Class != want || c.ignores && !strings.Contains(verdict.Description, "Return the error of a failed statement") {
				t.Errorf("judged %+v: %v", verdict, err)
			}
			wantRows(t, db, 0, 0)
			if _, err := r.Middleware(effectMySQL)(newMessage("m1")); err != nil {
				t.Fatal(err)
			}
			wantRows(t, db, 1, 1)
		})
	}
}

// deadlock lets tx and another transaction wait for each other, and returns the error with which tx ended.
func deadlock(t *testing.T, db *sql.DB, tx *sql.Tx) error {
	t.Helper()
	const lock = `UPDATE pair SET n = n + 1 WHERE id = ?`
	other, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Rollback() }()
	if _, err := other.Exec(`INSERT INTO heavy SELECT seq FROM seq_1_to_1000`); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Exec(lock, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(lock, 1); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { _, err := other.Exec(lock, 1); done <- err }()
	time.Sleep(50 * time.Millisecond) // whoever comes second is told; it is tx in any case, which wrote less
	_, err = tx.Exec(lock, 2)
	if err := <-done; err != nil {
		t.Error(err)
	}
	return err
}

// Promise P7: what a duplicate committed meanwhile is not mistaken for a commit by the handler that rolled back.
func TestMySQLRollbackThenDuplicate(t *testing.T) {
	db := openMySQL(t)
	store, key := storeOn(db), idempotency.Key{Consumer: "c", ID: "same"}
	c, err := store.Claim(t.Context(), idempotency.Entry{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Tx().Exec(`ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	if first, err := claimOnce(store, key); err != nil || !first {
		t.Fatal(first, err)
	}
	if err := c.Release(); err != nil {
		t.Error(err)
	}
}

// Promise P7: a handler that removes the key, or leaves rows open, is not applied, and spoils nothing for the next. One
// that sets savepoints and rolls back to them does as it may.
func TestMySQLHandlerSpoilsTransaction(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*sql.Tx) error
		fails bool
	}{
		"key gone":  {func(tx *sql.Tx) error { _, err := tx.Exec(`DELETE FROM spillway_keys`); return err }, true},
		"open rows": {func(tx *sql.Tx) error { _, err := tx.Query(`SELECT seq FROM seq_1_to_100000`); return err }, true},
		"savepoint": {func(tx *sql.Tx) error {
			_, set := tx.Exec(`SAVEPOINT mine`)
			_, wrote := tx.Exec(`INSERT INTO effects VALUES ('taken back')`)
			_, back := tx.Exec(`ROLLBACK TO mine`)
			return errors.Join(set, wrote, back)
		}, false},
		"failed statement": {func(tx *sql.Tx) error { _, _ = tx.Exec(`nonsense`); return nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			db := openMySQL(t)
			db.SetMaxOpenConns(1)
			r := newReceiver(t, storeOn(db), idempotency.ReceiverConfig{})
			_, err := r.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				return []*message.Message{newMessage("out")}, c.spoil(idempotency.Tx(msg.Context()))
			})(newMessage("m1"))
			if (err != nil) != c.fails || errors.Is(err, sql.ErrTxDone) || name == "open rows" && !strings.Contains(err.Error(), "close them") {
				t.Fatal(err)
			}
			if _, err := r.Middleware(effectMySQL)(newMessage("m2")); err != nil {
				t.Fatal(err)
			}
			keys := 2
			if c.fails {
				keys = 1
			}
			wantRows(t, db, 1, keys)
			wantAutocommit(t, db)
		})
	}
}
