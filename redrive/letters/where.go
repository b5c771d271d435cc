package letters

import (
	"strings"
)

// where collects conditions of constant text and the values bound to them. No value ever becomes part of the text.
type where struct {
	conditions []string
	args       []any
}

func (w *where) and(condition string, args ...any) {
	w.conditions = append(w.conditions, condition)
	w.args = append(w.args, args...)
}

func (w *where) String() string {
	if len(w.conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.conditions, " AND ")
}

// anyIn adds that the column is one of the values, as bind writes them. No values mean no condition.
func anyIn[T any](w *where, column string, values []T, bind func(T) any) {
	if len(values) == 0 {
		return
	}
	args := make([]any, len(values))
	for i, value := range values {
		args[i] = bind(value)
	}
	w.and(column+" IN (?"+strings.Repeat(",?", len(values)-1)+")", args...)
}

// Names and ids are bytes in the database, so that any of them survives in a database of any encoding.
func asBytes(s string) any { return []byte(s) }

// ofBody is the metadata or the payload of a letter, whichever version stored it.
func ofBody(column string) string {
	return `COALESCE((SELECT letter_` + column + ` FROM spillway_letter_bodies WHERE body = ` + bodyOf + `), ` + column +
		`)`
}

// where returns the conditions for what f chooses of the store's service. The fields have been validated.
func (s *Store) where(f Filter) *where { return s.conditions(f, "service", "status") }

// whereByKey returns the same conditions for letters that are named by their Seq. No index of services and states
// serves them: PostgreSQL, as long as it has no statistics of the table, would read all letters that wait instead of
// those named.
func (s *Store) whereByKey(f Filter, seqs []int64) *where {
	w := s.conditions(f, "COALESCE(service, '')", "COALESCE(status, '')")
	keys, args := s.among(seqs)
	w.and(keys, args...)
	return w
}

// free are the conditions for letters that f chooses and that have no lease.
func (s *Store) free(f Filter) *where {
	w := s.where(f)
	w.and("leased_until <= now_us()")
	return w
}

func (s *Store) freeByKey(f Filter, seqs []int64) *where {
	w := s.whereByKey(f, seqs)
	w.and("leased_until <= now_us()")
	return w
}

func (s *Store) conditions(f Filter, service, status string) *where {
	w := new(where)
	w.and(service+" = ?", asBytes(s.service))
	anyIn(w, status, f.statuses(), func(status Status) any { return s.db.Text(string(status)) })
	switch {
	case f.After > 0 && f.NewestFirst:
		w.and("seq < ?", f.After)
	case f.After > 0:
		w.and("seq > ?", f.After)
	}
	if f.MaxSeq > 0 {
		w.and("seq <= ?", f.MaxSeq)
	}
	if f.Leased {
		w.and("token <> '' AND leased_until > now_us()")
		w.and("seq >= (SELECT MIN(first_seq) FROM spillway_letter_claims WHERE leased_until > now_us())")
		w.and("seq <= (SELECT MAX(last_seq) FROM spillway_letter_claims WHERE leased_until > now_us())")
	}
	s.common(w, &f, "")
	for _, other := range f.unless {
		not := new(where)
		anyIn(not, status, other.statuses(), func(status Status) any { return s.db.Text(string(status)) })
		s.common(not, &other, "")
		w.and("NOT ("+strings.Join(not.conditions, " AND ")+")", not.args...)
	}
	anyIn(w, "id", f.IDs, asBytes)
	anyIn(w, "seal_key", f.SealKeys, s.readable)
	if len(f.RedriveIDs) > 0 {
		either := new(where)
		anyIn(either, "redrive_id", f.RedriveIDs, s.readable)
		anyIn(either, "arrived_redrive_id", f.RedriveIDs, s.db.Bytes)
		w.and("("+strings.Join(either.conditions, " OR ")+")", either.args...)
	}
	if f.Description != "" {
		w.and(s.statements.contains("description"), s.db.Bytes(f.Description))
	}
	if len(f.Metadata) > 0 {
		s.aboutMetadata(w, &f)
	}
	if f.Payload != "" {
		w.and(s.statements.contains(ofBody("payload")), []byte(f.Payload))
	}
	if !f.Since.IsZero() {
		w.and("last_failed_at >= ?", f.Since.UnixMicro())
	}
	if !f.Until.IsZero() {
		w.and("last_failed_at < ?", f.Until.UnixMicro())
	}
	return w
}
