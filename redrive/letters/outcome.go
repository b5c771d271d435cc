package letters

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// Learn looks for what became of the letters that a drain or campaign redrove, marks them and returns the numbers.
//   - A letter failed again if another letter arrived with the id of the redrive that names it, or has its message's
//     id. So it did if the same one arrived again.
//   - A letter succeeded if the idempotent receiver applied its message: the receiver's keys are in the same database,
//     of the same service and handler, and the key of the message is its id. A message with outputs succeeded when they
//     are published. The receiver marks that within a spillway.Channel. Elsewhere it is believed 5 minutes after the
//     message was applied, but never of a letter of reason output_undeliverable, whose message was applied before.
//
// Otherwise another program marks it, by MarkAll. Live traffic does nothing for it: Learn looks keys
// up.
func (s inner) Learn(ctx context.Context, redriveID string) (inside.Outcome, error) {
	outcome, err := s.learn(ctx, Act{By: s.node, RedriveID: redriveID})
	return outcome, wrapped("learn of redrive "+logged(redriveID), err)
}

func (s *Store) learn(ctx context.Context, act Act) (inside.Outcome, error) {
	keys := s.hasKeys(ctx)
	returns, err := s.anyReturned(ctx, act.RedriveID)
	if err != nil {
		return inside.Outcome{}, err
	}
	if !keys && !returns {
		return s.outcome(ctx, act.RedriveID)
	}
	for after := int64(0); ; {
		asked, err := s.askedOf(ctx, act.RedriveID, after)
		if err != nil {
			return inside.Outcome{}, err
		}
		if len(asked) == 0 {
			return s.outcome(ctx, act.RedriveID)
		}
		after = asked[len(asked)-1].seq
		var failed []redriven
		if returns {
			failed, err = s.cameBack(ctx, act.RedriveID, asked)
		}
		if err == nil {
			err = s.learned(ctx, act, StatusFailedAgain, failed)
		}
		if err == nil && keys {
			var applied []redriven
			if applied, err = s.applied(ctx, asked, failed); err == nil {
				err = s.learned(ctx, act, StatusSucceeded, applied)
			}
		}
		if err != nil {
			return inside.Outcome{}, err
		}
	}
}

// redriven is a redriven letter that is asked for.
type redriven struct {
	seq         int64
	id, handler string
	identity    string // its own
	reason      string
	storedAt    int64 // in microseconds
}

func (s *Store) askedOf(ctx context.Context, redriveID string, after int64) (asked []redriven, err error) {
	err = s.read(ctx, func() { asked = nil }, func(rows *sql.Rows) error {
		var a redriven
		var id, handler, reason []byte
		var body int64
		err := rows.Scan(&a.seq, &id, &handler, &reason, &body, &a.storedAt)
		a.id, a.handler, a.reason, a.identity = string(id), string(handler), string(reason), ownIdentity(body, a.storedAt)
		asked = append(asked, a)
		return err
	}, `SELECT seq, id, handler, reason, `+bodyOf+` AS its_body, stored_at FROM spillway_dead_letters
WHERE redrive_id = ? AND redrive_id <> '' AND seq > ? AND COALESCE(service, '') = ? AND COALESCE(status, '') = 'redriven'
ORDER BY seq LIMIT ?`, s.db.Text(redriveID), after, asBytes(s.service), sweepAtOnce)
	return asked, err
}

// hasKeys reports whether the receiver's keys are in this database.
func (s *Store) hasKeys(ctx context.Context) bool { return s.readKeys(ctx) == nil }

func (s *Store) readKeys(ctx context.Context) error {
	return s.read(ctx, func() {}, func(*sql.Rows) error {
		return nil
	}, `SELECT id FROM spillway_keys WHERE expires_at IS NULL AND consumer = ''`)
}

// applied returns the letters whose messages the receiver applied, without those that came back.
func (s *Store) applied(ctx context.Context, asked, without []redriven) (applied []redriven, err error) {
	came := make(map[int64]bool, len(without))
	for _, a := range without {
		came[a.seq] = true
	}
	byConsumer := make(map[string][]redriven)
	for _, a := range asked {
		if consumer := s.consumer(a.handler); !came[a.seq] && a.id != "" {
			byConsumer[consumer] = append(byConsumer[consumer], a)
		}
	}
	for consumer, some := range byConsumer {
		w := new(where)
		w.and("consumer = ?", s.db.Text(database.Column(consumer)))
		anyIn(w, "id", some, func(a redriven) any { return s.db.Text(database.Column(a.id)) })
		w.and("expires_at IS NULL") // a lease says that a handler is at work
		keys := make(map[string]appliedKey)
		err := s.read(ctx, func() { clear(keys) }, func(rows *sql.Rows) error {
			var id string
			var k appliedKey
			err := rows.Scan(&id, &k.published, &k.at, &k.now)
			keys[id] = k
			return err
		}, `SELECT id, outputs IS NULL, applied_at, now_ms() FROM spillway_keys`+w.String(), w.args...)
		if err != nil {
			return nil, err
		}
		for _, a := range some {
			if k, is := keys[database.Column(a.id)]; is && k.says(a) {
				applied = append(applied, a)
			}
		}
	}
	return applied, nil
}

// appliedKey is a key that the receiver applied.
type appliedKey struct {
	published bool  // no outputs are recorded, or none any more
	at, now   int64 // in milliseconds, by the database's clock
}

// outputsTake is how long the outputs of a message take to be published, or to make a letter of it. Longer ago they
// were published where no mark says so: by a handler whose publishing the receiver does not see.
const outputsTake = 5 * time.Minute

// says reports whether the key says that the redriven message of a letter succeeded.
func (k appliedKey) says(of redriven) bool {
	switch of.reason {
	case classify.ReasonOutput: // the key was applied before there was a letter
		return k.published
	case classify.ReasonKeyReused: // with another message's payload
		return 1000*k.at > of.storedAt
	}
	return k.published || k.now-k.at > outputsTake.Milliseconds()
}

// consumer is what idempotency.Store.Consumer returns for the handler.
func (s *Store) consumer(handler string) string {
	if s.service == "" && !strings.Contains(handler, "/") {
		return handler
	}
	return s.service + "/" + handler
}

// learned marks letters that are still redriven by this redrive.
func (s *Store) learned(ctx context.Context, act Act, status Status, learned []redriven) error {
	if len(learned) == 0 {
		return nil
	}
	seqs := make([]int64, len(learned))
	for i, a := range learned {
		seqs[i] = a.seq
	}
	return s.writeLetters(ctx, len(seqs), func(tx *sql.Tx, t tally) error {
		letters, err := s.lockFree(ctx, tx, Filter{Statuses: []Status{StatusRedriven}, RedriveIDs: []string{act.RedriveID}},
			seqs)
		if err != nil {
			return err
		}
		return s.move(ctx, tx, t, letters, status, act)
	})
}

// outcome counts the letters of a redrive by what is known. A letter that waits again arrived again.
func (s *Store) outcome(ctx context.Context, redriveID string) (o inside.Outcome, err error) {
	err = s.read(ctx, func() { o = inside.Outcome{} }, func(rows *sql.Rows) error {
		var status Status
		var n int
		err := rows.Scan(&status, &n)
		switch status {
		case StatusRedriven:
			o.Redriven += n
		case StatusSucceeded:
			o.Succeeded += n
		case StatusFailedAgain, StatusWaiting:
			o.FailedAgain += n
		}
		return err
	}, `SELECT status, COUNT(*) FROM spillway_dead_letters WHERE redrive_id = ? AND redrive_id <> '' AND COALESCE(service, '') = ? GROUP BY status`,
		s.db.Text(redriveID), asBytes(s.service))
	return o, err
}

// A letter that arrived with the id of a redrive says which letter its message was brought back from, by an identity
// that any producer may have written. It is believed of a letter that this redrive brought back, of the same handler: a
// handler copies metadata to what it produces, and the message reaches other handlers of the topic too. A letter that
// names no such letter, as those of other programs, is that of the message with its id.

// returned is a letter that arrived with the id of a redrive.
type returned struct {
	seq         int64
	id, handler string
	from        string // the identity that it names
}

// anyReturned reports whether a letter arrived with the redrive's id. A database that has no index of them is not
// asked.
func (s *Store) anyReturned(ctx context.Context, redriveID string) (any bool, err error) {
	if !s.statements.knowsArrived {
		return true, nil
	}
	w := s.arrivedWith(redriveID)
	w.and("arrived_redrive_id <> ''")
	err = s.read(ctx, func() { any = false }, func(*sql.Rows) error { any = true; return nil },
		`SELECT seq FROM spillway_dead_letters`+w.String()+` LIMIT 1`, w.args...)
	return any, err
}

// cameBack returns the letters of which another one arrived with the redrive's id.
func (s *Store) cameBack(ctx context.Context, redriveID string, asked []redriven) (back []redriven, err error) {
	var ids []string
	identities := make([]string, len(asked))
	for i, a := range asked {
		if identities[i] = a.identity; a.id != "" {
			ids = append(ids, a.id)
		}
	}
	w := s.arrivedWith(redriveID)
	anyIn(w, "arrived_letter", identities, func(identity string) any { return s.db.Text(identity) })
	w.and("arrived_letter <> ''")
	found, err := s.returned(ctx, w)
	if err == nil && len(ids) > 0 {
		w := s.arrivedWith(redriveID)
		anyIn(w, "id", ids, asBytes)
		var byID []returned
		byID, err = s.returned(ctx, w)
		found = append(found, byID...)
	}
	return matched(asked, found), err
}

func (s *Store) arrivedWith(redriveID string) *where {
	w := new(where)
	w.and("COALESCE(service, '') = ?", asBytes(s.service))
	w.and("arrived_redrive_id = ?", s.db.Bytes(redriveID))
	return w
}

func (s *Store) returned(ctx context.Context, w *where) (found []returned, err error) {
	err = s.read(ctx, func() { found = nil }, func(rows *sql.Rows) error {
		var r returned
		var id, handler []byte
		err := rows.Scan(&r.seq, &id, &handler, &r.from)
		r.id, r.handler = string(id), string(handler)
		found = append(found, r)
		return err
	}, `SELECT seq, id, handler, arrived_letter FROM spillway_dead_letters`+w.String(), w.args...)
	return found, err
}

// matched returns those of the letters that came back as one of found.
func matched(asked []redriven, found []returned) (back []redriven) {
	type of struct{ name, handler string }
	asks := make(map[of]bool, len(asked))
	for _, a := range asked {
		asks[of{a.identity, a.handler}] = true
	}
	named, sameID := make(map[of]bool), make(map[of]int64)
	for _, r := range found {
		if by := (of{r.from, r.handler}); asks[by] {
			named[by] = true
		} else if r.id != "" {
			sameID[of{r.id, r.handler}] = r.seq
		}
	}
	for _, a := range asked {
		seq, same := sameID[of{a.id, a.handler}]
		if named[of{a.identity, a.handler}] || same && seq != a.seq {
			back = append(back, a)
		}
	}
	return back
}

// KeepsWaiting is how long letters that wait are kept by the rules of NewRetention in this process. 0 is for good.
func (s inner) KeepsWaiting() time.Duration { return time.Duration(s.retention.Load()) }

// The record knows of a message what its letters do not say: a redrive that lost the metadata on the way, a letter that
// was purged, one that a person put back.
func (s inner) CameBack(ctx context.Context, tx *sql.Tx, seqs ...int64) (map[int64]bool, error) {
	back := make(map[int64]bool)
	if len(seqs) == 0 {
		return back, nil
	}
	ids := make(map[string][]int64)
	keys, args := s.among(seqs)
	err := s.rows(ctx, tx, func(rows *sql.Rows) error {
		var seq int64
		var id []byte
		var arrived bool
		err := rows.Scan(&seq, &id, &arrived)
		if back[seq] = arrived || len(id) == 0; !back[seq] {
			delete(back, seq)
			column := database.Column(string(id))
			ids[column] = append(ids[column], seq)
		}
		return err
	}, `SELECT seq, id, CASE WHEN arrived_redrive_id <> '' OR arrived_letter <> '' THEN 1 ELSE 0 END
FROM spillway_dead_letters`+s.statements.byKey+` WHERE `+keys+` AND COALESCE(service, '') = ?`, append(args, asBytes(s.service))...)
	if err != nil || len(ids) == 0 {
		return back, wrapped("ask which letters came back", err)
	}
	w := new(where)
	w.and("kind = ?", s.db.Text(string(EventRedriven)))
	w.and("service = ?", asBytes(s.service))
	anyIn(w, "message", slices.Collect(maps.Keys(ids)), s.db.Text)
	err = s.rows(ctx, tx, func(rows *sql.Rows) error {
		var id string
		err := rows.Scan(&id)
		for _, seq := range ids[id] {
			back[seq] = true
		}
		return err
	}, `SELECT DISTINCT message FROM spillway_letter_events`+w.String(), w.args...)
	return back, wrapped("ask which letters came back", err)
}

// rows reads within a transaction, or outside of one.
func (s *Store) rows(ctx context.Context, tx *sql.Tx, scan func(*sql.Rows) error, query string, args ...any) error {
	if tx == nil {
		return s.read(ctx, func() {}, scan, query, args...)
	}
	return database.Each(ctx, tx, scan, s.db.Statement(query), args...)
}

// learnedOf is how many redrives of a cause Redriven learns of.
const learnedOf = 20

// Redriven returns what became of the letters of a cause that were redriven since a time, by the id of the redrive.
// It learns of the latest 20 redrives first.
func (s inner) Redriven(ctx context.Context, cause string, since time.Time) (map[string]inside.Outcome, error) {
	outcomes, open, err := s.redrivenOf(ctx, cause, since)
	for _, id := range open[:min(len(open), learnedOf)] {
		if err == nil {
			_, err = s.learn(ctx, Act{By: s.node, RedriveID: id})
		}
	}
	if err == nil && len(open) > 0 {
		outcomes, _, err = s.redrivenOf(ctx, cause, since)
	}
	return outcomes, wrapped("ask for redrives", err)
}

// redrivenOf returns the outcomes of the redrives of a cause, and those of which not all is known, the latest first.
func (s *Store) redrivenOf(ctx context.Context, cause string,
	since time.Time) (outcomes map[string]inside.Outcome, open []string, err error) {
	w := s.where(Filter{Causes: []string{cause}, Statuses: []Status{StatusWaiting, StatusRedriven, StatusSucceeded,
		StatusFailedAgain}})
	w.and("redrive_id <> '' AND marked_at > ?", since.UnixMicro())
	// a letter that a person put back has the id of that
	w.and("(status <> 'waiting' OR EXISTS (SELECT 1 FROM spillway_letter_events AS e WHERE e.redrive_id = spillway_dead_letters.redrive_id " +
		"AND e.redrive_id <> '' AND e.kind = 'redriven'))")
	err = s.read(ctx, func() { outcomes, open = make(map[string]inside.Outcome), nil }, func(rows *sql.Rows) error {
		var id string
		var o inside.Outcome
		err := rows.Scan(&id, &o.Redriven, &o.Succeeded, &o.FailedAgain)
		if outcomes[id] = o; o.Redriven > 0 {
			open = append(open, id)
		}
		return err
	}, `SELECT redrive_id, SUM(CASE status WHEN 'redriven' THEN 1 ELSE 0 END), SUM(CASE status WHEN 'succeeded' THEN 1 ELSE 0 END),
	SUM(CASE WHEN status IN ('failed_again', 'waiting') THEN 1 ELSE 0 END)
FROM spillway_dead_letters`+s.statements.byCause+w.String()+` GROUP BY redrive_id ORDER BY MAX(marked_at) DESC`, w.args...)
	return outcomes, open, err
}
