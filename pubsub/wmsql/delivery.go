package wmsql

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watermill-spillway/spillway/internal/chain"
)

// delivery is one message on its way, in its transaction. The message's context holds it.
type delivery struct {
	t     *transaction
	db    *sql.DB // the pool that the transaction's connection is of
	topic string
	group string
	at    position
	of    *entry

	mu    sync.Mutex
	state outcome
	first string        // the savepoint before everything that the message brought about
	busy  chan struct{} // closed when the claim that is open has ended; nil without a claim
	// spoiled says that an attempt failed whose key is in the database all the same: delivered again, the message would
	// be absorbed as if it had succeeded.
	spoiled atomic.Bool
}

// outcome is how a delivery ends.
type outcome int

const (
	open outcome = iota
	acked
	nacked
	rolledBack
	spoiled // rolledBack, and delivered again it would be absorbed
	gone    // before a handler had the message
)

func deliveryOf(ctx context.Context) *delivery {
	d, _ := chain.TransactionOf(ctx).(*delivery)
	return d
}

// end closes the delivery: from now on nothing is written in it. A message that its handler settled itself is held
// until the claim of that handler has ended.
func (d *delivery) end(how outcome, grace time.Duration) outcome {
	if how == rolledBack || !d.lockUnclaimed(grace) {
		how = rolledBack
		d.t.cut() // before the lock: a statement that is running holds it
		d.mu.Lock()
	}
	defer d.mu.Unlock()
	if how == nacked && d.first != "" && d.t.rollbackTo(d.first) != nil {
		how = rolledBack
	}
	if how == acked && d.t.failed() != nil {
		d.t.cut()
	}
	if over, _ := d.t.fate(); over != nil {
		how = rolledBack
	}
	d.state = how
	return how
}

// lockUnclaimed waits until no claim is open, and then holds the lock. It returns false, without the lock, if a claim
// is still open after grace.
func (d *delivery) lockUnclaimed(grace time.Duration) bool {
	var over <-chan time.Time
	for {
		d.mu.Lock()
		busy := d.busy
		if busy == nil {
			return true
		}
		select {
		case <-busy:
			return true
		default:
		}
		d.mu.Unlock()
		if over == nil {
			over = time.After(grace)
		}
		select {
		case <-busy:
		case <-over:
			return false
		}
	}
}

// usable returns why a delivery takes nothing more, or nil.
func (d *delivery) usable() error {
	switch d.state {
	case open:
		return nil
	case acked:
		return errSettled
	default:
		return errOver
	}
}

// begin sets a savepoint and returns the *sql.Tx of it. The caller holds the lock.
func (d *delivery) begin() (*sql.Tx, string, error) {
	tx, err := d.t.db.BeginTx(context.Background(), nil)
	if err != nil {
		return nil, "", err
	}
	d.t.proxy.Lock()
	name := savepointName(d.t.savepoints)
	d.t.proxy.Unlock()
	if d.first == "" {
		d.first = name
	}
	return tx, name, nil
}

// Write is for what other parts write on behalf of the message. See chain.Joined.
func (d *delivery) Write(db *sql.DB, work func(*sql.Tx) error) (joined bool, err error) {
	if d.db != db {
		return false, nil
	}
	if err := d.write(work); !errors.Is(err, errSettled) {
		return true, err
	}
	return false, nil
}

func (d *delivery) write(work func(*sql.Tx) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(); err != nil {
		return err
	}
	tx, _, err := d.begin()
	if err != nil {
		return err
	}
	if err := work(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func savepointName(n int) string { return "spillway_" + strconv.Itoa(n) }
