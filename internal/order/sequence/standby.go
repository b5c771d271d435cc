package sequence

import (
	"context"
	"database/sql"
	"time"

	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing/wait"
)

// StandBy drains what its owner left behind, until the source is looked at by Load, or ctx ends. It is for a process
// that does not know whether the source is its own: any process may drain, as doc.go says. So that two seldom do
// the same, it takes a lane whose first message is due for longer than Late, and who is at work on a message says so
// in that time.
func (o *Owner) StandBy(ctx context.Context) {
	for wait.For(ctx, o.Late/3) {
		all, err := o.store.late(ctx, o.of, o.Late)
		if err != nil && ctx.Err() == nil {
			logging.SequencesAway.Write(o.Logger, err, o.fields())
		}
		o.mu.Lock()
		looked := o.looks > 0
		for _, lane := range all {
			if !looked {
				o.noteLocked(lane, time.Now(), load{})
			}
		}
		o.mu.Unlock()
		if looked {
			return
		}
	}
}

// seen is how often the source was looked at.
func (o *Owner) seen() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.looks
}

// leave forgets a lane that had no row, or none for a process that stands by. What was looked at since then may have
// one: then the lane is looked at again.
func (o *Owner) leave(l *Lane, seen int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.looks != seen {
		o.laterLocked(l, time.Now())
		return
	}
	delete(o.lanes, string(l.Key))
	o.count.Add(-1)
	o.addLocked(l, load{-l.messages, -l.bytes})
}

// takes reports whether a process that stands by has a message for itself.
func (o *Owner) takes(ctx context.Context, row *Row) bool {
	taken := false
	return !row.Held && o.insist(ctx, func() error {
		n, err := o.store.touch(ctx, o.of, row, o.Late)
		taken = n > 0
		return err
	}) && taken
}

// atWork says again and again that the process is at work on a message, until stop is called.
func (o *Owner) atWork(ctx context.Context, row *Row) (stop func()) {
	if o.Late == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for wait.For(ctx, o.Late/3) {
			_, _ = o.store.touch(ctx, o.of, row, 0) // the next time will do
		}
	}()
	return cancel
}

// late returns the sequences whose first message is due for longer than late, and not held.
func (s *Store) late(ctx context.Context, of Source, late time.Duration) (lanes [][]byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	err = s.db.QueryPlanned(ctx, func() { lanes = nil }, func(rows *sql.Rows) error {
		var lane []byte
		err := rows.Scan(&lane)
		lanes = append(lanes, notNil(lane))
		return err
	}, s.db.Statement(`SELECT p.lane FROM spillway_parked p JOIN (SELECT MIN(seq) AS seq FROM spillway_parked WHERE source = ?
GROUP BY lane) first ON first.seq = p.seq WHERE p.due_at < now_us() - ? AND `+isHeld+` = 0`), []byte(of.hash(s.service)), late.Microseconds())
	return lanes, err
}

// touch writes that a message is due now, if it was due for longer than late.
func (s *Store) touch(ctx context.Context, of Source, row *Row, late time.Duration) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxWrite)
	defer cancel()
	return s.db.Exec(ctx, s.db.Statement(`UPDATE spillway_parked SET due_at = now_us() WHERE source = ? AND position = ?
AND fingerprint = ? AND due_at < now_us() - ?`), append(s.message(of, row), late.Microseconds())...)
}
