package letters

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// The numbers of the causes stand beside the letters. Letters that are deleted by hand, or come out of a backup without
// their numbers, would leave them wrong for good. So they are compared with the letters, once an hour in one of the
// service's processes, by whatever reads them, and by a person's command.

const (
	compareEvery = time.Hour
	// maxCompare bounds a comparison that a read waits for.
	maxCompare = 10 * time.Second
	// repairSlot is the slot of what a comparison adds, where no writer counts. Its row without a cause has the minute of
	// the latest comparison.
	repairSlot = -1
)

// compared compares the numbers if no process has for an hour. An error is none of the reader's: a role that may only
// read cannot repair them.
func (s *Store) compared(ctx context.Context) {
	now, due := time.Now(), s.compareAt.Load()
	if now.UnixNano() < due || !s.compareAt.CompareAndSwap(due, now.Add(compareEvery).UnixNano()) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, maxCompare)
	defer cancel()
	var latest int64
	err := s.read(ctx, func() {}, func(rows *sql.Rows) error { return rows.Scan(&latest) },
		`SELECT minute FROM spillway_letter_counts WHERE service = ? AND cause = ? AND slot = ?`,
		asBytes(s.service), s.db.Text(""), repairSlot)
	if err == nil && now.Sub(time.Unix(60*latest, 0)) >= compareEvery {
		_, _ = s.repairNumbers(ctx)
	}
}

// Numbers returns the causes whose kept numbers are not those of their letters, and repairs them if asked to. Each
// service does so by itself once an hour.
func (s inner) Numbers(ctx context.Context, repair bool) (wrong []inside.WrongNumbers, err error) {
	var found []drift
	if repair {
		found, err = s.repairNumbers(ctx)
	} else {
		found, err = s.drifts(ctx, nil)
	}
	for _, d := range found {
		wrong = append(wrong, inside.WrongNumbers{Cause: d.cause, Letters: d.letters, Counted: d.letters - d.missing()})
	}
	return wrong, wrapped("compare the numbers of the causes", err)
}

// drift is what the numbers of a cause lack.
type drift struct {
	cause    string
	letters  int
	last     int64 // the greatest Seq, or 0
	byStatus numbers
}

func (d *drift) missing() (n int) {
	for _, some := range d.byStatus {
		n += some
	}
	return n
}

// drifts compares numbers and letters with one statement, which sees both as they are at one moment: what changes
// letters counts them in the same transaction.
func (s *Store) drifts(ctx context.Context, tx *sql.Tx) (found []drift, err error) {
	scan := func(rows *sql.Rows) error {
		d := drift{byStatus: newNumbers()}
		err := rows.Scan(slices.Concat([]any{&d.cause, &d.letters, &d.last}, d.byStatus.into())...)
		found = append(found, d)
		return err
	}
	service := asBytes(s.service)
	if s.db.Kind() == database.Postgres {
		var some bool
		ask := func(rows *sql.Rows) error { return rows.Scan(&some) }
		err := s.rows(ctx, tx, ask, `SELECT row_security_active('spillway_dead_letters') OR row_security_active('spillway_letter_counts')`)
		if err != nil || some {
			return nil, errors.Join(err, errSomeRows)
		}
	}
	if tx != nil {
		return found, s.rows(ctx, tx, scan, driftQuery, service, service, service)
	}
	err = s.read(ctx, func() { found = nil }, scan, driftQuery, service, service, service)
	return found, err
}

var errSomeRows = errors.New("row-level security is on for this role, which may see a part of the letters: use a role with BYPASSRLS")

// driftQuery finds the causes whose numbers are not those of their letters, or that are not described.
var driftQuery = `SELECT d.cause, SUM(letters), MAX(last), ` + statusColumns("SUM(%[1]s)") + `
FROM (SELECT cause, n AS letters, last, ` + statusColumns("CASE WHEN status = '%[1]s' THEN n ELSE 0 END AS %[1]s") + `
	FROM (SELECT cause, status, COUNT(*) AS n, MAX(seq) AS last FROM spillway_dead_letters WHERE service = ?
		GROUP BY status, cause) AS l
	UNION ALL SELECT cause, 0, 0, ` + statusColumns("-SUM(%[1]s)") + `
	FROM spillway_letter_counts WHERE service = ? AND cause <> '' GROUP BY cause) AS d
LEFT JOIN spillway_letter_causes AS c ON c.service = ? AND c.cause = d.cause
GROUP BY d.cause HAVING ` + strings.ReplaceAll(statusColumns("SUM(%[1]s) <> 0"), ",", " OR") + `
	OR SUM(letters) > 0 AND COUNT(c.cause) = 0 ORDER BY d.cause`

// repairNumbers adds to the numbers of each cause what they lack. Traffic goes on meanwhile: what is added does not
// depend on it. Of two repairs one waits for the other, by the row without a cause.
func (s *Store) repairNumbers(ctx context.Context) (found []drift, err error) {
	err = s.write(ctx, func(tx *sql.Tx) (err error) {
		if err := s.add(ctx, tx, drift{byStatus: newNumbers()}, time.Now().Unix()/60); err != nil {
			return err
		}
		if found, err = s.drifts(ctx, tx); err != nil {
			return err
		}
		for _, d := range found {
			if err := s.add(ctx, tx, d, 0); err != nil {
				return err
			}
			if d.last == 0 {
				continue
			}
			_, err := s.exec(ctx, tx, `INSERT INTO spillway_letter_causes (service, cause, dead_letter_topic, origin_topic, handler, class, reason, type, stack_hash)
SELECT service, cause, dead_letter_topic, origin_topic, handler, class, reason, type, stack_hash FROM spillway_dead_letters WHERE seq = ?
`+s.statements.unless, d.last)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return found, err
}

// add counts what a cause lacks.
func (s *Store) add(ctx context.Context, tx *sql.Tx, d drift, minute int64) error {
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	if d.last > 0 {
		row := tx.QueryRowContext(ctx, s.db.Statement(`SELECT MIN(first_failed_at), MAX(last_failed_at) FROM spillway_dead_letters`+
			s.statements.byCause+` WHERE service = ? AND status IN ('`+strings.ReplaceAll(statusColumns("%s"), ", ", "', '")+
			`') AND cause = ?`), asBytes(s.service), s.db.Text(d.cause))
		if err := row.Scan(&first, &last); err != nil {
			return err
		}
	}
	args := []any{asBytes(s.service), s.db.Text(d.cause), repairSlot}
	for _, n := range d.byStatus {
		args = append(args, n)
	}
	_, err := tx.ExecContext(ctx, s.statements.count, append(args, 0, first, last, d.last, minute, 0)...)
	return err
}
