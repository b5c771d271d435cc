package letters

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
	"github.com/watermill-spillway/spillway/poison"
)

// Metadata is packed: keys and values with their lengths in front, in no order. The database looks for the bytes of a
// key and its value. These bytes can also stand within a value, or where a value and the next key meet. So what the
// database finds are candidates, and the Store reads their metadata.

// aboutMetadata adds that a letter is a candidate: it has the bytes of each pair, or the producer's metadata in one
// value.
func (s *Store) aboutMetadata(w *where, f *Filter) {
	var pairs []string
	var args []any
	for _, key := range slices.Sorted(maps.Keys(f.Metadata)) {
		pairs = append(pairs, s.statements.contains("metadata"))
		args = append(args, metadatacodec.Append(metadatacodec.Append(nil, key), f.Metadata[key]))
	}
	w.and(`EXISTS (SELECT 1 FROM spillway_letter_bodies WHERE body = `+bodyOf+` AND (`+strings.Join(pairs, " AND ")+` OR `+
		s.statements.contains("metadata")+`))`, append(args, metadatacodec.Append(nil, poison.KeyOriginalMetadata))...)
}

// hasMetadata reports whether packed metadata have the pairs of f, as they are or as the producer gave them.
func (f *Filter) hasMetadata(packed []byte) bool {
	metadata, err := metadatacodec.Read(packed)
	if err != nil { // damaged
		return false
	}
	msg := message.NewMessage("", nil)
	msg.Metadata = metadata
	var original message.Metadata
	for key, value := range f.Metadata {
		if got, ok := metadata[key]; ok && got == value {
			continue
		}
		if original == nil {
			original = poison.Read(msg).Original.Metadata
		}
		if got, ok := original[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// candidatesAtOnce is how many candidates one statement returns.
const candidatesAtOnce = 500

// candidate is a letter that may have the metadata that a filter asks for.
type candidate struct {
	seq, first, last int64
	size             int
	cause            string
}

// withMetadata calls add with the letters that f chooses, all of whose metadata it has read, until add returns false.
func (s *Store) withMetadata(ctx context.Context, f Filter, free bool, add func(candidate) (more bool)) error {
	r, err := s.routeOf(ctx, f)
	if err != nil {
		return err
	}
	newest := f.NewestFirst
	return s.each(ctx, r, func(f Filter) (more bool, err error) {
		for {
			w := s.where(f)
			if free {
				w = s.free(f)
			}
			var found []candidate
			n, last := 0, int64(0)
			err := s.readPlanned(ctx, func() { found, n = nil, 0 }, func(rows *sql.Rows) error {
				var c candidate
				var packed []byte
				err := rows.Scan(&c.seq, &c.size, &c.cause, &c.first, &c.last, &packed)
				n, last = n+1, c.seq
				if err == nil && f.hasMetadata(packed) {
					found = append(found, c)
				}
				return err
			}, `SELECT seq, size, cause, first_failed_at, last_failed_at, `+ofBody("metadata")+`
FROM spillway_dead_letters`+r.hint+w.String()+` ORDER BY `+r.order+` LIMIT ?`, append(w.args, candidatesAtOnce)...)
			if err != nil {
				return false, err
			}
			for _, c := range found {
				if !add(c) {
					return false, nil
				}
			}
			if n < candidatesAtOnce || newest && last <= 1 {
				return true, nil
			}
			if newest {
				f.MaxSeq = last - 1
			} else {
				f.After = last
			}
		}
	})
}
