package idempotency_test

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/database/mysql"
)

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
	time.Sleep(50 * time.Millisecond) // the second one is told; it is tx in any case, which wrote less
	_, err = tx.Exec(lock, 2)
	if err := <-done; err != nil {
		t.Error(err)
	}
	return err
}
