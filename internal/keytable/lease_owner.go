package keytable

import (
	"context"
	"errors"
	"fmt"
)

// Fence is the fencing token: it rises with every lease of the key, as long as its row is there. It is 0 where the key
// was applied.
func (l *Lease) Fence() int64 { return l.fence }

// Recorded is what stands there of a key that was applied before, or nil where the lease was won.
func (l *Lease) Recorded() *Record { return l.recorded }

var errApplied = errors.New("the key was applied before, and is not leased")

// Renew makes the lease last for its duration from now, by the database's clock. One that has expired is renewed too,
// if no other owner took the key.
func (l *Lease) Renew(ctx context.Context) error {
	return l.owner(ctx, "renew the lease", func(q Querier) error {
		return l.changeOr(ctx, q, l.of.held, l.of.renew, l.duration)
	})
}

// Complete makes the key an applied one. It may be tried again after any error.
func (l *Lease) Complete(ctx context.Context, outputs []byte) error {
	var recorded any // a nil []byte is an empty value to some drivers
	if len(outputs) > 0 {
		recorded = outputs
	}
	return l.owner(ctx, "complete the lease", func(q Querier) error {
		return l.changeOr(ctx, q, l.of.completed, l.of.complete, recorded, l.row.Fingerprint, l.row.version())
	})
}

// Release gives the lease up. The row stays, with its fence; one that is lost is no error.
func (l *Lease) Release(ctx context.Context) error {
	if l.recorded != nil {
		return nil
	}
	return l.owner(ctx, "give the lease up", func(q Querier) error {
		_, err := l.of.dialect.change(ctx, q, l.of.release, append(l.key(), l.fence)...)
		return err
	})
}

func (l *Lease) owner(ctx context.Context, doing string, work func(Querier) error) error {
	if l.recorded != nil {
		return fmt.Errorf("%s: %s: %w", l.of.db.Kind(), doing, errApplied)
	}
	if err := l.of.write(ctx, work); err != nil {
		return fmt.Errorf("%s: %s: %w", l.of.db.Kind(), doing, err)
	}
	return nil
}

// changeOr runs a statement on the row while its fence is still ours. Where that changes nothing, same reports whether
// it is because the row is as it should be already: then a lost answer is made up for, and MySQL counts no row that
// stays the same, as one does that is renewed twice within a millisecond.
func (l *Lease) changeOr(ctx context.Context, q Querier, same, statement string, args ...any) error {
	owned := append(l.key(), l.fence)
	changed, err := l.of.dialect.change(ctx, q, statement, append(args, owned...)...)
	if err != nil || changed {
		return err
	}
	n := 0
	if err := q.QueryRowContext(ctx, same, owned...).Scan(&n); err != nil {
		return err
	}
	if n == 0 {
		return ErrLeaseLost
	}
	return nil
}
