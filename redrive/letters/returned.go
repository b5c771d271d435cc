package letters

import (
	"context"
	"database/sql"
)

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
