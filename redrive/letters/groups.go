package letters

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/poison"
)

// Group describes the letters of one cause. They failed in the same handler, for the same reason, with an error of the
// same type and the same text, apart from its numbers, ids and quoted texts.
type Group struct {
	// Cause is the hash of the cause, for Filter.Causes. It is the same in every process.
	Cause string
	// DeadLetterTopic is the topic that the letters were placed in.
	DeadLetterTopic string
	// Topic is the origin topic.
	Topic string
	// Handler is the name of the handler that failed.
	Handler string
	Class   classify.Class
	Reason  string
	// Type is the chain of error types.
	Type      string
	StackHash string

	// Count is the number of letters that the Filter chooses.
	Count int
	// All are the numbers of all letters of the cause, by their status.
	All map[Status]int
	// Arrived counts how often letters of the cause arrived, ever.
	Arrived int
	// LastMinute is the number of arrivals in the last full minute.
	LastMinute int
	// FirstFailedAt is the time of the earliest failure of any letter of the cause, to the microsecond. If the Filter
	// has more than statuses and what the letters of a cause have in common, it is that of the letters that the Filter
	// chooses.
	FirstFailedAt time.Time
	// LastFailedAt is the time of the latest failure.
	LastFailedAt time.Time
	// Example is the Seq of the letter that arrived last.
	Example int64
	// Description is the description of that letter.
	Description string
}

// Groups returns the causes of the letters that f chooses, the largest groups first, at most Filter.Limit of them. The
// numbers are kept with the letters. Only if f has a time, an id, a text to look for, a RedriveID, After or MaxSeq,
// letters are counted.
func (s *Store) Groups(ctx context.Context, f Filter) ([]Group, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if err := f.validateInOrder(); err != nil {
		return nil, err
	}
	counted, err := s.countCauses(ctx, f, f.limit())
	if err != nil {
		return nil, wrapped("group", err)
	}
	order := bySize(counted)
	order = order[:min(len(order), f.limit())]
	groups, err := s.groups(ctx, f, order, counted)
	return groups, wrapped("group", err)
}

// causeCount is the letters of a cause that a filter chooses.
type causeCount struct {
	n                    int
	first, last, example int64
}

// bySize are causes in the order of Groups.
func bySize(counted map[string]causeCount) []string {
	return slices.SortedFunc(maps.Keys(counted), func(a, b string) int {
		return cmp.Or(cmp.Compare(counted[b].n, counted[a].n), cmp.Compare(counted[b].example, counted[a].example))
	})
}

// countCauses returns the numbers of the letters that f chooses, by cause. A limit that is not 0 may leave out small
// ones.
func (s *Store) countCauses(ctx context.Context, f Filter, limit int) (map[string]causeCount, error) {
	s.compared(ctx)
	counted := make(map[string]causeCount)
	add := func(rows *sql.Rows) error {
		var cause string
		var some causeCount
		err := rows.Scan(&cause, &some.n, &some.first, &some.last, &some.example)
		if c, ok := counted[cause]; ok {
			some.n, some.first, some.last, some.example = some.n+c.n, min(some.first, c.first), max(some.last, c.last),
				max(some.example, c.example)
		}
		counted[cause] = some
		return err
	}
	if f.causesOnly() {
		tables, number, w := s.numbers(f)
		query := `SELECT n.cause, ` + number + ` AS letters, MIN(n.first_failed_at), MAX(n.last_failed_at), MAX(n.last_seq) AS example
FROM ` + tables + w.String() + ` GROUP BY n.cause HAVING ` + number + ` > 0`
		if limit > 0 {
			query += ` ORDER BY letters DESC, example DESC LIMIT ?`
			w.args = append(w.args, limit)
		}
		return counted, s.read(ctx, func() { clear(counted) }, add, query, w.args...)
	}
	if len(f.Metadata) > 0 {
		return counted, s.scan(ctx, f, false, false, 0, func(l candidate) bool {
			c, ok := counted[l.cause]
			if !ok {
				c.first, c.last = l.first, l.last
			}
			counted[l.cause] = causeCount{c.n + 1, min(c.first, l.first), max(c.last, l.last), max(c.example, l.seq)}
			return true
		})
	}
	r, err := s.routeOf(ctx, f)
	if err != nil {
		return nil, err
	}
	err = s.each(ctx, r, func(f Filter) (bool, error) {
		w, before := s.where(f), maps.Clone(counted)
		return true, s.readPlanned(ctx, func() { counted = maps.Clone(before) }, add, `SELECT cause, COUNT(*), MIN(first_failed_at), MAX(last_failed_at), MAX(seq)
FROM spillway_dead_letters`+r.hint+w.String()+` GROUP BY cause`, w.args...)
	})
	return counted, err
}

// groups describes causes in their order.
func (s *Store) groups(ctx context.Context, f Filter, order []string, counted map[string]causeCount) ([]Group, error) {
	described := make(map[string]Group, len(order))
	for some := range slices.Chunk(order, maxCauses) {
		if err := s.describe(ctx, some, described); err != nil {
			return nil, err
		}
	}
	groups := make([]Group, 0, len(order))
	var seqs []int64
	for _, cause := range order {
		g, c := described[cause], counted[cause]
		g.Cause, g.Count, g.FirstFailedAt, g.LastFailedAt, g.Example = cause, c.n, fromMicro(c.first), fromMicro(c.last),
			c.example
		groups, seqs = append(groups, g), append(seqs, c.example)
	}
	return groups, s.exemplify(ctx, f, groups, seqs)
}

// describe reads what the letters of causes have in common, and their numbers.
func (s *Store) describe(ctx context.Context, some []string, described map[string]Group) error {
	among := new(where)
	among.and("service = ?", asBytes(s.service))
	anyIn(among, "cause", some, s.db.Text)
	minute := time.Now().Unix() / 60
	args := append(append([]any{minute, minute - 1}, among.args...), among.args...)
	return s.read(ctx, func() {}, func(rows *sql.Rows) error {
		var g Group
		var deadLetterTopic, topic, handler []byte
		var class string
		numbers := newNumbers()
		err := rows.Scan(slices.Concat([]any{&g.Cause, &deadLetterTopic, &topic, &handler, &class, &g.Reason, &g.Type,
			&g.StackHash, &g.Arrived, &g.LastMinute}, numbers.into())...)
		g.All = numbers.byStatus()
		g.DeadLetterTopic, g.Topic, g.Handler, g.Class = string(deadLetterTopic), string(topic), string(handler),
			classOf(class)
		described[g.Cause] = g
		return err
	}, `SELECT c.cause, dead_letter_topic, origin_topic, handler, class, reason, type, stack_hash,
	arrived, of_late, `+statusColumns("%s")+`
FROM (SELECT cause, `+statusColumns("SUM(%[1]s) AS %[1]s")+`, SUM(arrived) AS arrived,
	SUM(CASE minute WHEN ? THEN minute_before WHEN ? THEN in_minute ELSE 0 END) AS of_late
	FROM spillway_letter_counts`+among.String()+` GROUP BY cause) AS n
JOIN (SELECT * FROM spillway_letter_causes`+among.String()+`) AS c ON c.cause = n.cause`, args...)
}

// exemplify gives each group the letter that arrived last. The one of the numbers may be gone, or in another state.
func (s *Store) exemplify(ctx context.Context, f Filter, groups []Group, seqs []int64) error {
	if len(groups) == 0 {
		return nil
	}
	type example struct {
		status             Status
		cause, description string
	}
	found := make(map[int64]example)
	keys, args := s.among(seqs)
	err := s.read(ctx, func() { clear(found) }, func(rows *sql.Rows) error {
		var seq int64
		var e example
		err := rows.Scan(&seq, &e.status, &e.cause, &e.description)
		found[seq] = e
		return err
	}, `SELECT seq, status, cause, description FROM spillway_dead_letters WHERE `+keys, args...)
	for i := range groups {
		g := &groups[i]
		e, ok := found[g.Example]
		if err == nil && (!ok || e.cause != g.Cause || !slices.Contains(f.statuses(), e.status)) {
			w := s.where(Filter{Causes: []string{g.Cause}, Statuses: f.Statuses})
			err = s.read(ctx, func() {}, func(rows *sql.Rows) error { return rows.Scan(&g.Example, &g.Description) },
				`SELECT seq, description FROM spillway_dead_letters`+s.statements.byCause+w.String()+` ORDER BY seq DESC LIMIT 1`,
				w.args...)
		} else {
			g.Description = e.description
		}
	}
	return err
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

// CausesBySize returns the causes of the letters that f chooses in the order of Groups, without the first skip of them,
// at most most.
func (s inner) CausesBySize(ctx context.Context, f Filter, skip, most int) ([]string, error) {
	counted, err := s.countCauses(ctx, f, skip+most)
	if err != nil {
		return nil, wrapped("group", err)
	}
	order := bySize(counted)
	return order[min(skip, len(order)):min(skip+most, len(order))], nil
}

// CausesBegin returns the causes of the service whose hash begins so, at most most, in the order of their hashes.
func (s inner) CausesBegin(ctx context.Context, begin string, most int) (causes []string, err error) {
	if begin == "" || strings.Trim(begin, "0123456789abcdef") != "" {
		return nil, nil // no hash begins so
	}
	err = s.read(ctx, func() { causes = nil }, database.Into(&causes), `SELECT cause FROM spillway_letter_causes WHERE service = ? AND cause LIKE ? ORDER BY cause LIMIT ?`,
		asBytes(s.service), s.db.Text(begin+"%"), most)
	return causes, wrapped("find causes", err)
}
