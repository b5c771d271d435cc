package letters

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/codec/envelope"
	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/poison"
	"github.com/watermill-spillway/spillway/seal"
)

// unreadableKey stands for the key of a sealed letter that does not say which it is.
const unreadableKey = "?"

// sealKey is the column seal_key.
func sealKey(l *poison.Letter) string {
	switch key := l.SealKey; {
	case !l.Sealed:
		return ""
	case key == "":
		return unreadableKey
	default:
		return key
	}
}

// contentOf is the same for the same payload, and of a sealed letter for the same payload and sealed metadata.
func contentOf(l *poison.Letter) []byte {
	if l.Sealed {
		if h, err := envelope.Parse(l.Original.Payload); err == nil {
			return append([]byte("sealed:"), h.Fingerprint...)
		}
	}
	sum := sha256.Sum256(l.Original.Payload)
	return sum[:]
}

// Open returns the letter with what was sealed, with the keys of the Store. A letter that is not sealed is
// returned as it is. The error names the key; the letter in the Store stays as it is.
func (s *Store) Open(ctx context.Context, l Letter) (poison.Letter, error) {
	if err := s.usable(ctx); err != nil {
		return poison.Letter{}, err
	}
	return s.openWith(ctx, s.seal, l)
}

// OpenWith is Open with other keys.
func (s inner) OpenWith(ctx context.Context, sealer *seal.Sealer, l Letter) (opened Letter, err error) {
	l.Letter, err = s.openWith(ctx, sealer, l)
	return l, err
}

// openWith compares the identity of the letter's row, beside what package seal binds: an envelope that was moved here
// from another row is an error that is seal.ErrOtherLetter.
func (s *Store) openWith(ctx context.Context, sealer *seal.Sealer, l Letter) (poison.Letter, error) {
	opened, err := l.Letter.Open(ctx, sealer)
	if err == nil && l.Sealed && !s.isRow(l, opened) {
		err = &envelope.Error{KeyID: l.SealKey, Err: fmt.Errorf("%w: its content is not that of the row",
			seal.ErrOtherLetter)}
	}
	if err != nil {
		return l.Letter, fmt.Errorf("letters: letter %d: %w", l.Seq, err)
	}
	return opened, nil
}

// isRow reports whether a sealed letter is that of its row. The identity of a row that was stored unsealed may be that
// of the opened letter. The identity of a letter without an id is random.
func (s *Store) isRow(l Letter, opened poison.Letter) bool {
	return l.Original.UUID == "" || len(l.identity) == 0 ||
		bytes.Equal(l.identity, identify(s.service, l.DeadLetterTopic, l.Letter)) ||
		bytes.Equal(l.identity, identify(s.service, l.DeadLetterTopic, opened))
}

// SealKeys counts the letters of the service by the key that they are sealed with, whatever their status, in the
// order of the keys. It reads all letters, without their bodies. A key that has no letters here, and none in a
// topic, is needed no more.
func (s inner) SealKeys(ctx context.Context) ([]inside.KeyCount, error) {
	return s.sealKeys(ctx)
}

func (s *Store) sealKeys(ctx context.Context) (keys []inside.KeyCount, err error) {
	err = s.read(ctx, func() { keys = nil }, func(rows *sql.Rows) error {
		var k inside.KeyCount
		err := rows.Scan(&k.Key, &k.Letters)
		keys = append(keys, k)
		return err
	}, `SELECT seal_key, COUNT(*) FROM spillway_dead_letters WHERE COALESCE(service, '') = ? GROUP BY seal_key ORDER BY seal_key`, asBytes(s.service))
	return keys, wrapped("count letters by key", err)
}

const (
	resealAtOnce = 50      // letters of a transaction
	resealBytes  = 8 << 20 // their bytes, unless one has more
	maxClosed    = 20      // letters whose errors a report has
)

// Reseal seals letters with the current key: those of old keys, and those that are not sealed. f chooses them; without
// Filter.Statuses letters of all states. It goes over the letters that are there when it starts, in small transactions
// beside other traffic, and returns how many it sealed. If it is killed, each letter has its old envelope or its new
// one: call it again. It leaves out letters that have a lease, and those that another transaction is writing: Count
// with Filter.SealKeys says what is left. Each letter that is resealed has an event. A letter that does not open stays
// as it is: the error counts them, and names the first ones with their keys.
//
// Reseal overwrites what the rows had. The database may still have it in its log, in backups, and in pages that it has
// not used again: a VACUUM on SQLite and PostgreSQL, and OPTIMIZE TABLE on MySQL, write the tables anew.
func (s *Store) Reseal(ctx context.Context, f Filter, act Act) (resealed int, err error) {
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	done, err := inner{s}.Reseal(ctx, f, act, nil)
	if err == nil && done.Closed > 0 {
		err = fmt.Errorf("letters: reseal: %d letters do not open, and stay as they are: give their keys too: %s",
			done.Closed, strings.Join(done.Why, "; "))
	}
	return done.Resealed, err
}

// Reseal is Reseal, with a report, and calls progress, if it is not nil, after each transaction. Letters that do not open
// are no error.
func (s inner) Reseal(ctx context.Context, f Filter, act Act, progress func(inside.Resealed)) (inside.Resealed, error) {
	r := &resealing{store: s.Store, filter: f, act: act, progress: progress}
	err := r.run(ctx)
	return r.report, wrapped(fmt.Sprintf("reseal, after %d", r.report.Resealed), err)
}

type resealing struct {
	store    *Store
	filter   Filter
	act      Act
	progress func(inside.Resealed)
	report   inside.Resealed
}

func (r *resealing) run(ctx context.Context) (err error) {
	f := &r.filter
	if err := errors.Join(f.validateInOrder(), r.act.validate()); err != nil {
		return err
	}
	if f.Limit != 0 {
		return fmt.Errorf("Filter.Limit is %d: leave it out", f.Limit)
	}
	if r.report.Key, err = hidden.Of(r.store.seal).CurrentID(ctx); err != nil {
		return err
	}
	if len(f.Statuses) == 0 {
		f.Statuses = Statuses()
	}
	present, any := f.present() // of an erased letter nothing is left
	if *f = present; !any {
		return nil
	}
	if len(f.SealKeys) == 0 {
		if f.SealKeys, err = r.oldKeys(ctx); err != nil || len(f.SealKeys) == 0 {
			return err
		}
	}
	if f.MaxSeq == 0 {
		if f.MaxSeq, err = r.store.lastSeq(ctx); err != nil || f.MaxSeq == 0 {
			return err
		}
	}
	for {
		chosen, err := r.store.choose(ctx, *f, true, resealAtOnce, resealBytes, true)
		if err != nil || len(chosen.seqs) == 0 {
			return err
		}
		f.After = chosen.seqs[len(chosen.seqs)-1]
		if err := r.some(ctx, chosen.seqs); err != nil {
			return err
		}
		if r.progress != nil {
			r.progress(r.report)
		}
	}
}

func (r *resealing) oldKeys(ctx context.Context) (old []string, err error) {
	keys, err := r.store.sealKeys(ctx)
	for _, k := range keys {
		if k.Key != r.report.Key && len(old) < MaxListed {
			old = append(old, k.Key)
		}
	}
	return old, err
}

// resealed is a letter with its new envelope.
type resealed struct {
	subject
	body             int64
	before, metadata []byte
	payload          []byte
	was, key         string
	fresh            []byte // the new identity
}

// some reseals letters. Keys are asked before the transaction, so that no row waits for a KMS.
func (r *resealing) some(ctx context.Context, seqs []int64) error {
	all, err := r.make(ctx, seqs)
	if err != nil || len(all) == 0 {
		return err
	}
	done := 0
	err = r.store.writeLetters(ctx, len(all), func(tx *sql.Tx, _ tally) error {
		done = 0
		keys := make([]int64, len(all))
		for i, l := range all {
			keys[i] = l.seq
		}
		f := r.filter
		locked, err := r.store.lockFree(ctx, tx, f, keys)
		if err != nil {
			return err
		}
		free := make(map[string]bool, len(locked))
		for _, l := range locked {
			free[string(l.identity)] = true
		}
		for _, l := range all {
			if !free[string(l.identity)] {
				continue
			}
			n, err := r.put(ctx, tx, l)
			if err != nil {
				return err
			}
			done += n
		}
		return nil
	})
	if err == nil {
		r.report.Resealed += done
	}
	return err
}

// make reads letters and seals them. A letter that does not open is left as it is.
func (r *resealing) make(ctx context.Context, seqs []int64) (all []resealed, err error) {
	keys, args := r.store.among(seqs)
	type row struct {
		resealed
		topic []byte
	}
	var rows []row
	err = r.store.read(ctx, func() { rows = nil }, func(from *sql.Rows) error {
		var l row
		var hasPayload bool
		err := from.Scan(&l.seq, &l.identity, &l.id, &l.topic, &l.body, &l.before, &l.payload, &hasPayload, &l.was)
		if hasPayload && l.payload == nil {
			l.payload = []byte{}
		}
		rows = append(rows, l)
		return err
	}, `SELECT seq, identity, id, dead_letter_topic, `+bodyOf+` AS its_body, metadata, payload, payload IS NOT NULL, seal_key
FROM spillway_dead_letters JOIN spillway_letter_bodies ON body = `+bodyOf+` WHERE `+keys+` AND status <> 'erased' ORDER BY seq`, args...)
	if err != nil {
		return nil, err
	}
	for i := range rows {
		l := &rows[i]
		changed, err := r.seal1(ctx, string(l.topic), &l.resealed)
		switch {
		case errors.Is(err, seal.ErrUnavailable) || ctx.Err() != nil:
			return nil, err
		case err != nil:
			r.report.Closed++
			if len(r.report.Why) < maxClosed {
				r.report.Why = append(r.report.Why, fmt.Sprintf("letter %d: %v", l.seq, err))
			}
		case changed:
			all = append(all, l.resealed)
		}
	}
	return all, nil
}

// seal1 seals one letter, with the same fingerprint if it was sealed.
func (r *resealing) seal1(ctx context.Context, topic string, l *resealed) (changed bool, err error) {
	msg := message.NewMessage(string(l.id), l.payload)
	if msg.Metadata, err = metadatacodec.Read(l.before); err != nil {
		return false, err
	}
	msg, changed, err = inside.Poison.Seal(ctx, r.store.seal, msg)
	if err != nil || !changed {
		return false, err
	}
	sealed := poison.Read(msg)
	l.metadata, l.payload, l.key = metadatacodec.Metadata(msg.Metadata), msg.Payload, sealKey(&sealed)
	l.fresh = l.identity
	if l.was == "" && len(l.id) > 0 {
		l.fresh = identify(r.store.service, topic, sealed)
	}
	return true, nil
}

// put writes a letter whose row is locked, unless it arrived again since it was read.
func (r *resealing) put(ctx context.Context, tx *sql.Tx, l resealed) (n int, err error) {
	result, err := r.store.exec(ctx, tx,
		`UPDATE spillway_letter_bodies SET metadata = ?, payload = ? WHERE body = ? AND metadata = ?`,
		l.metadata, l.payload, l.body, l.before)
	if err != nil {
		return 0, err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return 0, err
	}
	if err := r.identify(ctx, tx, &l); err != nil {
		return 0, err
	}
	_, err = r.store.exec(ctx, tx, `UPDATE spillway_dead_letters SET seal_key = ?, size = ? WHERE seq = ?`,
		r.store.db.Text(l.key), len(l.metadata)+len(l.payload), l.seq)
	if err != nil {
		return 0, err
	}
	act := r.act
	act.Detail = fmt.Sprintf("from key %q to %q", l.was, l.key)
	return 1, r.store.record(ctx, tx, EventResealed, act, l.subject)
}

// identify gives a letter that was not sealed the identity of a sealed one, so that it is recognised when it arrives
// again. The old identity is made of a hash of the payload too. A letter keeps it if it has events, which have it as
// well, or if the sealed one is there already.
func (r *resealing) identify(ctx context.Context, tx *sql.Tx, l *resealed) error {
	if string(l.fresh) == string(l.identity) {
		return nil
	}
	there, err := r.store.seqs(ctx, tx, `SELECT seq FROM spillway_dead_letters WHERE identity = ?`, l.fresh)
	if err != nil || len(there) > 0 {
		return err
	}
	events, err := r.store.seqs(ctx, tx,
		`SELECT event FROM spillway_letter_events WHERE service = ? AND message = ? AND identity = ? LIMIT 1`,
		asBytes(r.store.service), r.store.db.Text(database.Column(string(l.id))), l.identity)
	if err != nil || len(events) > 0 {
		return err
	}
	_, err = r.store.exec(ctx, tx, `UPDATE spillway_dead_letters SET identity = ? WHERE seq = ?`, l.fresh, l.seq)
	l.identity = l.fresh
	return err
}
