// Package postgresclaim is the claim of a key in PostgreSQL. claim.go begins and ends it, enter.go enters the key in
// one round trip with or without a driver's pipeline, and optimistic.go with the handler's first statement.
package postgresclaim

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/watermill-spillway/spillway/idempotency/internal/claims"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
	"github.com/watermill-spillway/spillway/internal/sqlstore/pipelined"
	"github.com/watermill-spillway/spillway/internal/sqlstore/sqlproxy"
)

// Store makes the claims of one *sql.DB.
type Store struct {
	DB       *sql.DB
	Send     pipelined.Sender // of a driver that sends several statements at once, or nil
	proxies  sqlproxy.Pool
	prepared prepared
}

// maxInText is the largest record of outputs, in bytes, that goes in the text of a statement, where it doubles.
const maxInText = 16 << 10

// Claim is a transaction on a connection of its own, which it begins and ends in one round trip each: beginning carries
// the key, and the end, where there is doubt, a proof of what it ends. The handler has a shadow of it, which sees all
// that gives rise to doubt.
type Claim struct {
	row      keytable.Row
	store    *Store
	conn     *sql.Conn
	proxy    *sqlproxy.Transaction
	recorded *keytable.Record   // the key was there already
	suspect  bool               // the handler ran a statement that may have ended the transaction
	failed   bool               // or one that failed
	settings *keytable.Settings // as they were before the handler may have changed them
	late     *lateness          // or nil
	ended    bool
	lost     bool // the connection, when the claim was rolled back
}

// LostConnection reports whether the connection was lost when the claim was rolled back.
func (c *Claim) LostConnection() bool { return c.lost }

// errAborted says that the handler went on after a statement had failed. Nothing of the transaction is in the database.
var errAborted = errors.New("a statement failed, so PostgreSQL commits nothing of the transaction, and the handler went on: " +
	"return the error of a failed statement, or set a SAVEPOINT before it and roll back to that")

// divisionByZero is how the statements that commit say that the key's row is not there.
const divisionByZero = "22012"

// Recorded returns what was recorded when the key was applied before, or nil.
func (c *Claim) Recorded() *keytable.Record { return c.recorded }

// Tx returns the transaction for the handler.
func (c *Claim) Tx() *sql.Tx {
	if c.proxy == nil {
		return nil // the key was applied: there is nothing to write
	}
	return c.proxy.Tx()
}

// Before is called by the proxy. Whatever may have ended the transaction is found out by the statement that commits. It
// comes with the settings under which our table is found, as they were before the handler could change them.
func (c *Claim) Before(ctx context.Context, statement string, _ []driver.NamedValue) error {
	if err := c.Enter(ctx); err != nil || plainPostgres(statement) {
		return err
	}
	if c.settings == nil && !c.failed {
		settings := new(keytable.Settings)
		err := c.guardInside(func() error {
			return c.conn.QueryRowContext(ctx, keytable.SettingsPostgres).Scan(&settings.SearchPath, &settings.Role)
		})
		if err != nil {
			return fmt.Errorf("postgres: read the settings that a statement may change: %w", err)
		}
		c.settings = settings
	}
	c.suspect = true
	return nil
}

// plainPostgres reports whether a statement can neither end the transaction nor change the settings.
func plainPostgres(statement string) bool {
	return sqlproxy.Plain(statement, "SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "MERGE", "VALUES", "SAVEPOINT",
		"RELEASE")
}

// Failed is called by the proxy. PostgreSQL refuses all that follows, unless the handler goes back to a savepoint of
// its own; but a COMMIT it takes for a ROLLBACK then, and says nothing.
func (c *Claim) Failed(_ context.Context, err error) error {
	c.failed = true
	return err
}

// Committed is called by the proxy.
func (c *Claim) Committed() error { return claims.CommittedByHandler("postgres", c.row) }

// Begin enters the key, and waits while another transaction holds the same one. It leaves nothing open when it fails.
func (s *Store) Begin(ctx context.Context, row keytable.Row) (*Claim, error) {
	conn, err := s.DB.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("postgres: take a connection: %w", err)
	}
	c := &Claim{row: row, store: s, conn: conn}
	if err := c.guard(func() error { return c.begin(ctx) }); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Claim) begin(ctx context.Context) error {
	err := c.enterInTime(ctx)
	if err == nil && c.recorded == nil {
		c.proxy, err = c.store.proxies.Begin(ctx, c.conn, c)
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, keytable.ErrHeld) { // nothing is wrong with the connection
		return errors.Join(fmt.Errorf("postgres: enter the key: %w", err), c.rollback())
	}
	c.throwAway()
	if ctx.Err() != nil { // how a driver says that it was interrupted differs, and must not decide what the error is
		return fmt.Errorf("postgres: wait for the key: %w", ctx.Err())
	}
	return fmt.Errorf("postgres: begin, and enter the key: %w", err)
}

// Commit records outputs and commits.
func (c *Claim) Commit(outputs []byte) error {
	if c.ended {
		return fmt.Errorf("postgres: commit of a claim that has ended: %w", sql.ErrTxDone)
	}
	return c.guard(func() error {
		if c.recorded != nil {
			return errors.Join(errors.New("postgres: commit of a key that was applied before"), c.rollback())
		}
		if c.late != nil && !c.late.entered {
			return errors.Join(errors.New("postgres: commit of a key that was not entered"), c.rollback())
		}
		switch left := c.proxy.Stop(); {
		case left.Reading:
			c.throwAway()
			return errors.New("postgres: commit: rows are open: close them before the handler returns")
		case left.Ended:
			return errors.Join(fmt.Errorf("postgres: commit: the handler has called Commit or Rollback: %w",
				sql.ErrTxDone),
				c.rollback())
		}
		if err := c.commit(outputs); err != nil {
			return c.refused(err)
		}
		c.end()
		return nil
	})
}

// commit sends everything at once, except for outputs that are large.
func (c *Claim) commit(outputs []byte) error {
	ctx := context.Background()
	doubt := c.suspect || c.failed
	if len(outputs) > maxInText && !doubt {
		if err := keytable.InPostgres.RecordOutputs(ctx, c.conn, c.row, outputs, 0); err != nil {
			return fmt.Errorf("record the outputs: %w", err)
		}
		outputs = nil
	}
	_, err := c.conn.ExecContext(ctx, keytable.CommitPostgres(c.row, outputs, doubt, c.settings))
	return err
}

// refused is the error of a commit that failed with err.
func (c *Claim) refused(err error) error {
	switch state := postgres.State(err); {
	case state == postgres.FailedTransaction:
		err = fmt.Errorf("postgres: commit: %w: %w", errAborted, err)
	case state == postgres.NoTransaction:
		err = fmt.Errorf("postgres: commit: there is no transaction any more: %w", sql.ErrTxDone)
	case state == divisionByZero && (c.suspect || c.failed):
		err = fmt.Errorf("postgres: commit: the key is not this transaction's: the handler ended the one it was given: %w",
			sql.ErrTxDone)
	case state == divisionByZero:
		err = fmt.Errorf("postgres: commit: the row of the key is gone: the handler removed it; leave spillway_keys to the "+
			"receiver: %w", err)
	case state != "": // the server answered
		err = fmt.Errorf("postgres: commit: %w", err)
	default:
		err = fmt.Errorf("postgres: commit, perhaps in vain (if it was not, the key will be found): %w", err)
	}
	c.throwAway()
	return err
}

// Release rolls back, unless the claim has ended.
func (c *Claim) Release() error {
	if c.ended {
		return nil
	}
	if c.late != nil { // a goroutine of the handler's may be on its way to the first statement
		c.proxy.Stop()
	}
	return c.guard(c.rollback)
}

// rollback returns an error only where the handler committed, in SQL.
func (c *Claim) rollback() error {
	reading := c.proxy != nil && c.proxy.Stop().Reading
	if c.late != nil && !c.late.begun {
		c.end()
		return nil
	}
	if reading {
		c.throwAway()
	} else if _, err := c.conn.ExecContext(context.Background(), `ROLLBACK`); err != nil {
		c.lost = true
		c.throwAway() // without its connection the transaction is over as well
	} else {
		c.end()
	}
	if c.suspect && c.committed() {
		return fmt.Errorf("postgres: roll back: the key is committed: %w", sql.ErrTxDone)
	}
	return nil
}

// committed reports whether the row that this claim entered is in the database, once its transaction has ended.
func (c *Claim) committed() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	found, err := keytable.InPostgres.Entered(ctx, c.store.DB, c.row)
	return err == nil && found
}

// end gives the connection back to the pool, unless it was discarded.
func (c *Claim) end() {
	c.ended = true
	if c.proxy != nil {
		c.proxy.Close()
	}
	_ = c.conn.Close()
}

// throwAway ends the claim and closes the connection itself: PostgreSQL rolls back what was open on it.
func (c *Claim) throwAway() {
	claims.Discard(c.conn)
	c.end()
}

func (c *Claim) guard(work func() error) error {
	return claims.Guard(c.conn, func() {
		c.ended = true
		if c.proxy != nil {
			c.proxy.Close()
		}
	}, work)
}
