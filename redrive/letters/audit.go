package letters

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/inside"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
)

// EventFilter chooses events. The zero value chooses all events of the Store's service, oldest first.
type EventFilter struct {
	// MessageIDs are ids of messages.
	MessageIDs []string
	// Kinds are kinds of events.
	Kinds []EventKind
	// By are the names of persons or programs, as the events have them.
	By []string
	// RedriveIDs are ids of drains and campaigns.
	RedriveIDs []string
	// Since is the earliest time of an event.
	Since time.Time
	// Until is the end of that time: the event was before it.
	Until time.Time
	// NewestFirst turns the order around.
	NewestFirst bool
	// After is the Number of the last event seen: only events behind it, in the order asked for, are chosen. It pages.
	After int64
	// Limit is the largest number of events. Default: DefaultLimit. At most MaxLimit.
	Limit int
}

func (f *EventFilter) validate() error {
	for field, n := range map[string]int{"MessageIDs": len(f.MessageIDs), "Kinds": len(f.Kinds), "By": len(f.By),
		"RedriveIDs": len(f.RedriveIDs)} {
		if n > MaxListed {
			return fmt.Errorf("letters: EventFilter.%s lists %d values, at most %d are possible: use several calls", field, n,
				MaxListed)
		}
	}
	for _, kind := range f.Kinds {
		if !slices.Contains(inside.EventKinds, string(kind)) {
			return fmt.Errorf("letters: EventFilter.Kinds: unknown kind %q: use one of %q", logged(string(kind)),
				inside.EventKinds)
		}
	}
	if f.Limit < 0 || f.Limit > MaxLimit || f.After < 0 {
		return fmt.Errorf("letters: EventFilter.Limit (%d) must be 0 to %d and After (%d) not negative", f.Limit, MaxLimit,
			f.After)
	}
	return nil
}

// Audit returns the events that f chooses, at most EventFilter.Limit of them. The next page is after the Number of the
// last one. Events that are recorded at the same time may appear within a page that was already read.
func (s *Store) Audit(ctx context.Context, f EventFilter) ([]Event, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if err := f.validate(); err != nil {
		return nil, err
	}
	w := new(where)
	w.and("service = ?", asBytes(s.service))
	anyIn(w, "message", f.MessageIDs, func(id string) any { return s.db.Text(database.Column(id)) })
	anyIn(w, "kind", f.Kinds, func(kind EventKind) any { return s.db.Text(string(kind)) })
	anyIn(w, "actor", f.By, s.readable)
	if len(f.RedriveIDs) > 0 {
		w.and("redrive_id <> ''") // the condition of the index
		anyIn(w, "redrive_id", f.RedriveIDs, s.readable)
	}
	if !f.Since.IsZero() {
		w.and("at >= ?", f.Since.UnixMicro())
	}
	if !f.Until.IsZero() {
		w.and("at < ?", f.Until.UnixMicro())
	}
	order := ""
	switch {
	case f.NewestFirst:
		order = " DESC"
		if f.After > 0 {
			w.and("event < ?", f.After)
		}
	case f.After > 0:
		w.and("event > ?", f.After)
	}
	limit := f.Limit
	if limit == 0 {
		limit = DefaultLimit
	}
	events, err := s.events(ctx, w, order, limit)
	if err != nil {
		return nil, fmt.Errorf("letters: audit: %w", err)
	}
	return events, nil
}

// History returns what became of the message of a letter, oldest first: the events of all letters of that id, at most
// MaxLimit. A message that failed again after a redrive has several letters. Of a letter without an id, only its own
// events are returned. A letter that was purged or erased has its events still.
func (s *Store) History(ctx context.Context, seq int64) ([]Event, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	history, err := s.history(ctx, seq)
	if err != nil {
		return nil, fmt.Errorf("letters: history of letter %d: %w", seq, err)
	}
	return history, nil
}

func (s *Store) history(ctx context.Context, seq int64) (history []Event, err error) {
	var identity, id []byte
	var message string
	service := asBytes(s.service)
	err = s.read(ctx, func() { identity = nil }, func(rows *sql.Rows) error { return rows.Scan(&identity, &id) },
		`SELECT identity, id FROM spillway_dead_letters WHERE seq = ? AND COALESCE(service, '') = ? AND COALESCE(status, '') <> 'erased'`, seq, service)
	message = database.Column(string(id))
	if err == nil && identity == nil {
		err = s.read(ctx, func() { identity = nil }, func(rows *sql.Rows) error { return rows.Scan(&identity, &message) },
			`SELECT identity, message FROM spillway_letter_events WHERE letter = ? AND service = ? ORDER BY event DESC LIMIT 1`,
			seq, service)
		id = []byte(message) // of a hash there are no letters, and of a purged one there may be none
	}
	if err != nil || identity == nil {
		return nil, err
	}
	w := new(where)
	w.and("service = ?", asBytes(s.service))
	w.and("message = ?", s.db.Text(message))
	letters := new(where)
	letters.and("COALESCE(service, '') = ?", asBytes(s.service)) // an index of services would read them all
	letters.and("id = ?", asBytes(string(id)))
	letters.and("COALESCE(status, '') <> 'erased'") // their arrivals are events
	if len(id) == 0 {
		w.and("identity = ?", identity)
		letters.and("identity = ?", identity)
	}
	err = s.read(ctx, func() { history = nil }, func(rows *sql.Rows) error {
		e := Event{Kind: EventStored, MessageID: message}
		var at int64
		err := rows.Scan(&e.Seq, &at, &e.identity)
		e.At = fromMicro(at)
		history = append(history, e)
		return err
	}, `SELECT seq, stored_at, identity FROM spillway_dead_letters`+letters.String()+` ORDER BY seq LIMIT ?`,
		append(letters.args, MaxLimit)...)
	if err != nil {
		return nil, err
	}
	events, err := s.events(ctx, w, "", MaxLimit)
	return inOrder(history, events), err
}

// inOrder puts the arrivals of letters among what became of them. An arrival has the time of a process's clock, and all
// others that of the database's, which may go by milliseconds: the first of what became of a letter comes behind its
// arrival.
func inOrder(arrivals, events []Event) (all []Event) {
	events = slices.DeleteFunc(events, func(e Event) bool {
		if e.Kind == EventStored { // of a letter that is purged
			arrivals = append(arrivals, e)
		}
		return e.Kind == EventStored
	})
	slices.SortStableFunc(arrivals, func(a, b Event) int { return a.At.Compare(b.At) })
	for _, e := range events {
		arrivals = slices.DeleteFunc(arrivals, func(a Event) bool {
			of := a.identity == e.identity
			if of && e.At.Before(a.At) {
				a.At = e.At
			}
			if of = of || a.At.Before(e.At); of {
				all = append(all, a)
			}
			return of
		})
		all = append(all, e)
	}
	return append(all, arrivals...)
}

func (s *Store) events(ctx context.Context, w *where, order string, limit int) (events []Event, err error) {
	err = s.read(ctx, func() { events = nil }, func(rows *sql.Rows) error {
		var e Event
		var at int64
		err := rows.Scan(&e.Number, &e.Seq, &e.MessageID, &e.Kind, &at, &e.By, &e.Reason, &e.RedriveID, &e.Detail,
			&e.identity)
		e.At = fromMicro(at)
		events = append(events, e)
		return err
	}, `SELECT event, letter, message, kind, at, actor, reason, redrive_id, detail, identity FROM spillway_letter_events`+
		w.String()+
		` ORDER BY event`+order+` LIMIT ?`, append(w.args, limit)...)
	return events, err
}

// readable binds a text that a column of text is compared with: what is no text is in no column, and no error either.
func (s *Store) readable(text string) any { return s.db.Text(boundedtext.Text(text, maxBy)) }
