package letters

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"

	"github.com/watermill-spillway/spillway/internal/codec/envelope"
	"github.com/watermill-spillway/spillway/internal/inside"
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

func (in *inner) OpenWith(ctx context.Context, sealer *seal.Sealer, l Letter) (opened Letter, err error) {
	s := (*Store)(in)
	if err := s.usable(ctx); err != nil {
		return Letter{}, err
	}
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

func (in *inner) SealKeys(ctx context.Context) ([]inside.KeyCount, error) {
	s := (*Store)(in)
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
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
