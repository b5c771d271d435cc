package keytable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// Row is a key on its way into the table, with what is known of the message that brings it.
type Row struct {
	Consumer, ID string // as in the columns
	Fingerprint  []byte
	Version      int64
	Versioned    bool
	At           int64 // when it was entered, in Unix milliseconds
	Nonce        int64 // tells this row from one that a duplicate entered
	Place        Place // of the delivery, if it is in a sequence
}

// NewRow returns the row of a key, entered now.
func NewRow(consumer, id string, fingerprint []byte, version int64, versioned bool) Row {
	return Row{Consumer: database.Column(consumer), ID: database.Column(id), Fingerprint: fingerprint, Version: version,
		Versioned: versioned, At: time.Now().UnixMilli(), Nonce: rand.Int64()}
}

// Record is what stands there of a key that was applied before.
type Record struct {
	Outputs     []byte
	Fingerprint []byte
	Version     int64
	Versioned   bool
	Settled     bool // without an effect
}

// ErrHeld is the error of a key that is leased.
var ErrHeld = errors.New("the key is leased: another delivery is at work on it")

// ErrGone says that a key which was entered is not there any more.
var ErrGone = errors.New("the row of the key is gone: the handler removed it; leave spillway_keys to the receiver")

// Querier is a transaction, or a connection.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// maxEnter bounds how often a key is entered again that vanished when it was looked at.
const maxEnter = 10

// Enter enters a row in a transaction that is READ COMMITTED: while another one holds the same key it waits for that.
// It returns nil where the row is entered, what was recorded where it is applied already, and ErrHeld.
func (d *Dialect) Enter(ctx context.Context, tx Querier, row Row) (*Record, error) {
	for try := 1; ; try++ {
		entered, err := d.insert(ctx, tx, row)
		if err != nil || entered {
			return nil, err
		}
		record, err := d.Resolve(ctx, tx, row)
		if !errors.Is(err, sql.ErrNoRows) || try == maxEnter { // it was purged, or its lease given up, in between
			return record, err
		}
	}
}

func (d *Dialect) insert(ctx context.Context, tx Querier, row Row) (entered bool, err error) {
	statement := d.enter
	if row.Versioned && d.upsert != "" {
		statement = d.upsert
	}
	entered, err = d.change(ctx, tx, statement, d.text(row.Consumer), d.text(row.ID), row.At, row.Fingerprint,
		row.version(), row.Nonce)
	if err != nil && (d.duplicate == nil || !d.duplicate(err)) {
		return false, err
	}
	if entered || !row.Versioned || d.advance == "" {
		return entered, nil
	}
	return d.change(ctx, tx, d.advance, row.At, row.Fingerprint, row.Version, row.Nonce, d.text(row.Consumer),
		d.text(row.ID), row.Version)
}

// Resolve is what remains of Enter where the key is there: it is applied, held by a lease, or taken over from one.
func (d *Dialect) Resolve(ctx context.Context, tx Querier, row Row) (*Record, error) {
	record, free, err := d.Find(ctx, tx, row)
	if err != nil {
		return nil, err
	}
	// A lease for a newer version leaves the one that is applied where it was.
	if free || record.Versioned && (!row.Versioned || record.Version >= row.Version) {
		return record, nil
	}
	take, args := d.takeOver, []any{row.At, row.Fingerprint, row.version(), row.Nonce, d.text(row.Consumer),
		d.text(row.ID)}
	if row.Place.isSet() {
		take, args = d.takeFurther, append(args, row.Place.args()...)
	}
	taken, err := d.change(ctx, tx, take, args...)
	if err == nil && !taken {
		return d.settled(ctx, tx, row, record)
	}
	return nil, err
}

// Find reads what is recorded of a key, and whether it is free of a lease. Without a row it is sql.ErrNoRows.
func (d *Dialect) Find(ctx context.Context, q Querier, row Row) (record *Record, free bool, err error) {
	record = new(Record)
	var version sql.NullInt64
	err = q.QueryRowContext(ctx, d.find, d.text(row.Consumer), d.text(row.ID)).Scan(&record.Outputs,
		&record.Fingerprint,
		&version, &free)
	record.Version, record.Versioned = version.Int64, version.Valid
	return record, free, err
}

// RecordOutputs records the outputs of a key that was entered. It refuses those with more bytes than most, unless most
// is 0: a server hangs up in the middle of a packet that is too large, which looks like an outage. A driver that
// writes values into the statement may double them, so that large ones go through a prepared statement.
func (d *Dialect) RecordOutputs(ctx context.Context, tx Querier, row Row, outputs []byte, most int) error {
	args := []any{outputs, d.text(row.Consumer), d.text(row.ID)}
	var changed bool
	var err error
	switch {
	case most > 0 && len(outputs) > most:
		return fmt.Errorf("the outputs have %d bytes, and the server takes %d: raise max_allowed_packet, or make smaller "+
			"outputs: %w", len(outputs), most, classify.ErrTooLarge)
	case most > 0 && 2*len(outputs) > most:
		changed, err = d.changePrepared(ctx, tx, d.record, args...)
	default:
		changed, err = d.change(ctx, tx, d.record, args...)
	}
	if err == nil && !changed {
		err = ErrGone
	}
	return err
}

// Entered reports whether this very row is in the database, and not one that a duplicate entered.
func (d *Dialect) Entered(ctx context.Context, q Querier, row Row) (bool, error) {
	n := 0
	err := q.QueryRowContext(ctx, d.entered, d.text(row.Consumer), d.text(row.ID), row.Nonce).Scan(&n)
	return n > 0, err
}

// Published forgets the outputs of a key that is applied with the row's version, so that none are returned again.
func (d *Dialect) Published(ctx context.Context, q Querier, row Row) error {
	_, err := d.change(ctx, q, d.published, d.text(row.Consumer), d.text(row.ID), row.version())
	return err
}

// Published is Dialect.Published in a transaction of its own.
func Published(ctx context.Context, db *database.Database, row Row) error {
	d := DialectOf(db.Kind())
	_, err := db.Exec(ctx, d.published, d.text(row.Consumer), d.text(row.ID), row.version())
	return err
}

func (d *Dialect) change(ctx context.Context, q Querier, statement string, args ...any) (changed bool, err error) {
	result, err := q.ExecContext(ctx, statement, args...)
	return changes(result, err)
}

// changePrepared is change with arguments that do not become part of the text.
func (d *Dialect) changePrepared(ctx context.Context, q Querier, statement string,
	args ...any) (changed bool, err error) {
	prepared, err := q.PrepareContext(ctx, statement)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, prepared.Close()) }()
	result, err := prepared.ExecContext(ctx, args...)
	return changes(result, err)
}

func changes(result sql.Result, err error) (changed bool, _ error) {
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	if err != nil {
		return false, fmt.Errorf("count the rows: %w", err)
	}
	return n > 0, nil
}

func (d *Dialect) text(s string) any {
	if d.bytes {
		return []byte(s)
	}
	return s
}

func (r *Row) version() any {
	if r.Versioned {
		return r.Version
	}
	return nil
}

// Place is where a delivery stands in its source. The zero value is of none that has an order.
type Place struct {
	Source   string // a hash, see package sequence
	Position int64
	Redrives int64
}

func (p *Place) isSet() bool { return p.Source != "" }

func (p *Place) args() []any { return []any{[]byte(p.Source), p.Position, p.Redrives} }

// settled is the record of a key that was not taken over: it absorbs the delivery, or is leased.
func (d *Dialect) settled(ctx context.Context, q Querier, row Row, record *Record) (*Record, error) {
	if !row.Place.isSet() {
		return nil, ErrHeld
	}
	absorbs, err := d.Absorbs(ctx, q, row)
	switch {
	case err != nil:
		return nil, err
	case !absorbs:
		return nil, ErrHeld
	}
	return &Record{Fingerprint: record.Fingerprint, Settled: true}, nil
}

// Absorbs reports whether the key is settled without an effect, at the row's place or further on.
func (d *Dialect) Absorbs(ctx context.Context, q Querier, row Row) (bool, error) {
	n := 0
	err := q.QueryRowContext(ctx, d.absorbs, append([]any{d.text(row.Consumer), d.text(row.ID)},
		row.Place.args()...)...).Scan(&n)
	return n > 0, err
}

// Settle writes that the message of a row ended at its place without an effect. It returns what is recorded if the key
// was applied, and ErrHeld if it is leased. While another transaction holds the key it waits for that, until ctx ends.
func Settle(ctx context.Context, db *database.Database, row Row) (applied *Record, err error) {
	d := DialectOf(db.Kind())
	err = db.Write(ctx, func(tx *sql.Tx) (err error) {
		applied, err = d.Settle(ctx, tx, row)
		return err
	})
	if err != nil && !errors.Is(err, ErrHeld) {
		err = fmt.Errorf("%s: settle a key: %w", db.Kind(), err)
	}
	return applied, err
}

// Settle is the same in a transaction.
func (d *Dialect) Settle(ctx context.Context, tx Querier, row Row) (*Record, error) {
	for try := 1; ; try++ {
		place := row.Place.args()
		settled, err := d.change(ctx, tx, d.settle,
			append([]any{d.text(row.Consumer), d.text(row.ID), row.At, row.Fingerprint, row.Nonce}, place...)...)
		if err != nil && (d.duplicate == nil || !d.duplicate(err)) || settled {
			return nil, err
		}
		record, free, err := d.Find(ctx, tx, row)
		if errors.Is(err, sql.ErrNoRows) && try < maxEnter { // it was purged in between
			continue
		}
		if err != nil {
			return nil, err
		}
		if free {
			return record, nil
		}
		if absorbs, err := d.Absorbs(ctx, tx, row); err != nil || absorbs {
			return nil, err
		}
		settled, err = d.change(ctx, tx, d.settleOn, append(append([]any{row.At, row.Fingerprint}, place...),
			d.text(row.Consumer), d.text(row.ID))...)
		if err == nil && !settled {
			err = ErrHeld
		}
		return nil, err
	}
}
