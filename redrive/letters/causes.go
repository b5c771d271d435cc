package letters

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
	"github.com/watermill-spillway/spillway/poison"
)

const (
	causesAtOnce = 500
	// maxBeginCauses bounds what NewStore does for the letters of an older version. Groups does the rest.
	maxBeginCauses = 5 * time.Second
)

// beginCauses computes the causes of letters that an older version of this package stored. Whether it succeeds does not
// matter: Groups goes on where it ends, and returns its error.
func (s *Store) beginCauses(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, maxBeginCauses)
	defer cancel()
	_ = s.fillCauses(ctx)
}

// fillCauses computes the cause and size of each letter of the service that has none, and counts the letter. As a rule
// there is none, and an index says so.
func (s *Store) fillCauses(ctx context.Context) error {
	w := new(where)
	w.and("service = ?", asBytes(s.service))
	anyIn(w, "status", Statuses(), func(status Status) any { return s.db.Text(string(status)) })
	w.and("cause = ''")
	for {
		found := make(map[int64]record)
		err := s.read(ctx, func() { clear(found) }, func(rows *sql.Rows) error {
			var seq, first, last int64
			var topic, originTopic, handler []byte
			var c cause
			err := rows.Scan(&seq, &topic, &originTopic, &handler, &c.class, &c.reason, &c.typ, &c.stackHash, &c.description,
				&first, &last)
			c.deadLetterTopic, c.topic, c.handler = string(topic), string(originTopic), string(handler)
			r := record{topic: string(topic), cause: c.hash()}
			r.letter.Origin = poison.Origin{Topic: c.topic, Handler: c.handler}
			r.letter.Failure = poison.Failure{Class: classOf(c.class), Reason: c.reason, Type: c.typ, StackHash: c.stackHash,
				Description: c.description, FirstFailedAt: fromMicro(first), LastFailedAt: fromMicro(last)}
			found[seq] = r
			return err
		}, `SELECT seq, dead_letter_topic, origin_topic, handler, class, reason, type, stack_hash, description, first_failed_at, last_failed_at
FROM spillway_dead_letters`+s.statements.noCause+w.String()+` ORDER BY seq LIMIT ?`, append(w.args, causesAtOnce)...)
		if err != nil || len(found) == 0 {
			return err
		}
		err = s.writeLetters(ctx, len(found), func(tx *sql.Tx, t tally) error {
			for _, seq := range slices.Sorted(maps.Keys(found)) {
				r := found[seq]
				if err := s.fillCause(ctx, tx, t, seq, &r); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
}

func (s *Store) fillCause(ctx context.Context, tx *sql.Tx, t tally, seq int64, r *record) error {
	result, err := s.exec(ctx, tx, `UPDATE spillway_dead_letters
SET cause = ?, size = CASE WHEN size >= 0 THEN size ELSE LENGTH(metadata) + COALESCE(LENGTH(payload), 0) END WHERE seq = ? AND cause = ''`, s.db.Text(r.cause), seq)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return err
	}
	var status Status
	row := tx.QueryRowContext(ctx, s.db.Statement(`SELECT status FROM spillway_dead_letters WHERE seq = ?`), seq)
	if err := row.Scan(&status); err != nil {
		return err
	}
	t.moved(r.cause, "", status)
	t.arrived(r, seq, r.letter.Failure.FirstFailedAt, r.letter.Failure.LastFailedAt)
	return nil
}

// cause is what failed, where and how: what the letters of one Group have in common.
type cause struct {
	deadLetterTopic, topic, handler string
	class, reason, typ, stackHash   string
	description                     string
}

func causeOf(deadLetterTopic string, l *poison.Letter) cause {
	return cause{
		deadLetterTopic, l.Origin.Topic, l.Origin.Handler,
		l.Failure.Class.String(), l.Failure.Reason, l.Failure.Type, l.Failure.StackHash, l.Failure.Description,
	}
}

// hash is the same for the same cause in every process. The table keeps it.
func (c cause) hash() string {
	var parts []byte
	for _, part := range []string{c.deadLetterTopic, c.topic, c.handler, c.class, c.reason, c.typ, c.stackHash,
		folded(c.description)} {
		parts = metadatacodec.Append(parts, part)
	}
	sum := sha256.Sum256(parts)
	return hex.EncodeToString(sum[:16])
}

// classOf is the class by its name, or ClassUnknown.
func classOf(name string) classify.Class {
	var class classify.Class
	_ = class.UnmarshalText([]byte(name)) // leaves ClassUnknown
	return class
}

// CauseOf returns the hash of the cause of a letter that is not in a Store, such as one that the hook OnDeadLetter of a
// poison.Queue is called with. It is the Group.Cause under which a Store keeps that letter. The exception is a letter
// that its publisher took only after the queue had cut it: what was cut does not count for the Store.
func CauseOf(l poison.Letter) string {
	bare := poison.Letter{
		Origin: poison.Origin{Topic: l.Origin.Topic, Handler: l.Origin.Handler},
		Failure: poison.Failure{Class: l.Failure.Class, Reason: l.Failure.Reason, Type: l.Failure.Type,
			StackHash: l.Failure.StackHash, Description: l.Failure.Description},
	}
	placed := poison.Read(bare.Encode()) // as the letter travels: texts are bounded
	return causeOf(l.DeadLetterTopic, &placed).hash()
}
