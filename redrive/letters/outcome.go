package letters

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

func (in *inner) Learn(ctx context.Context, redriveID string) (inside.Outcome, error) {
	s := (*Store)(in)
	if err := s.usable(ctx); err != nil {
		return inside.Outcome{}, err
	}
	act := Act{By: s.node, RedriveID: redriveID}
	err := act.validate()
	if redriveID == "" {
		err = errNoRedriveID
	}
	if err != nil {
		return inside.Outcome{}, wrapped("learn", err)
	}
	outcome, err := s.learn(ctx, act)
	return outcome, wrapped("learn of redrive "+logged(redriveID), err)
}

var errNoRedriveID = errors.New("the id of a redrive is needed: that of a drain's Report, or of a campaign")

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
