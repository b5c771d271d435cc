package letters

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/poison"
)

const (
	// DefaultLimit is the largest number of rows that List and Groups return if Filter.Limit is 0.
	DefaultLimit = 100
	// MaxLimit is the greatest Filter.Limit.
	MaxLimit = 1000
	// MaxListed is the largest number of values in one list of a Filter.
	MaxListed = 500
)

// Filter chooses letters. The zero value chooses all letters that wait. A letter must satisfy every field that is set.
// It satisfies a list if it has any one of the values. A Filter can be kept as JSON, as long as its texts are UTF-8.
type Filter struct {
	// Topics are origin topics.
	Topics []string `json:"topics,omitempty"`
	// NotTopics are origin topics that the letter must not have.
	NotTopics []string `json:"not_topics,omitempty"`
	// NoOrigin chooses messages that do not say where they came from: of dead-letter topics that programs without
	// Spillway write to. DeadLetterTopics chooses by the topic that such a message was collected from.
	NoOrigin bool `json:"no_origin,omitempty"`
	// DeadLetterTopics are the topics that the letters were placed in.
	DeadLetterTopics []string `json:"dead_letter_topics,omitempty"`
	// Handlers are names of the handlers that failed.
	Handlers []string `json:"handlers,omitempty"`
	// Classes are classes of the latest failure.
	Classes []classify.Class `json:"classes,omitempty"`
	// Reasons are reasons of the latest failure.
	Reasons []string `json:"reasons,omitempty"`
	// Types are chains of error types, as Failure.Type has them.
	Types []string `json:"types,omitempty"`
	// Description is a text that the description of the latest failure contains, byte for byte.
	Description string `json:"description,omitempty"`
	// Metadata are keys of the message's metadata, with the values that they must have, byte for byte. In a Store the
	// keys can also be those that Spillway added. Of a sealed letter only metadata that stay readable are found. It is
	// looked for in every letter that the other fields choose.
	Metadata map[string]string `json:"metadata,omitempty"`
	// Payload is a text that the payload contains, byte for byte, or as JSON may escape it: "Jürgen" finds J\u00fcrgen,
	// and the other way. It is looked for in every letter that the other fields choose. In a sealed letter it is not
	// found.
	Payload string `json:"payload,omitempty"`
	// Causes are hashes of causes, as Group.Cause has them.
	Causes []string `json:"causes,omitempty"`
	// RedriveIDs are ids of drains. The letter failed again after such a drain brought it back. Or such a drain was the
	// last to change the letter's status in the Store. For letters that a drain brought back, set Statuses too.
	RedriveIDs []string `json:"redrive_ids,omitempty"`
	// StackHash is the hash of the latest failure's stack.
	StackHash string `json:"stack_hash,omitempty"`
	// IDs are message ids.
	IDs []string `json:"ids,omitempty"`
	// Since is the earliest time of the latest failure. A letter without a time of failure failed when it arrived in
	// the Store.
	Since time.Time `json:"since,omitzero"`
	// Until is the end of that time: the latest failure was before it.
	Until time.Time `json:"until,omitzero"`

	// The following fields choose rows of a Store. Matches does not use them.

	// Statuses are the states of letters. Default: StatusWaiting.
	Statuses []Status `json:"statuses,omitempty"`
	// SealKeys are ids of keys that letters are sealed with. An empty one stands for letters that
	// are not sealed.
	SealKeys []string `json:"seal_keys,omitempty"`
	// Leased chooses only letters that have a lease now.
	Leased bool `json:"leased,omitempty"`
	// NewestFirst turns the order of List and Heads around. Everything else refuses it.
	NewestFirst bool `json:"newest_first,omitempty"`
	// After is the Seq of the last letter seen: only letters behind it, in the order asked for, are chosen. It pages
	// through a List.
	After int64 `json:"after,omitempty"`
	// MaxSeq is the Seq of the last letter to choose. 0 means no bound.
	MaxSeq int64 `json:"max_seq,omitempty"`
	// Limit is the largest number of rows that List and Groups return. Default: DefaultLimit. At most MaxLimit.
	Limit int `json:"limit,omitempty"`

	// unless chooses letters that are not chosen: those that earlier rules of a Retention decide about. Only what the
	// letters of a cause have in common counts, and Statuses.
	unless []Filter
}

// Validate returns an error that names the field with a value that no Store accepts.
func (f *Filter) Validate() error {
	lists := []struct {
		field string
		n     int
	}{
		{"Topics", len(f.Topics)}, {"NotTopics", len(f.NotTopics)}, {"DeadLetterTopics", len(f.DeadLetterTopics)},
		{"Handlers", len(f.Handlers)}, {"Classes", len(f.Classes)}, {"Reasons", len(f.Reasons)}, {"IDs", len(f.IDs)},
		{"Statuses", len(f.Statuses)}, {"Types", len(f.Types)}, {"Causes", len(f.Causes)}, {"RedriveIDs", len(f.RedriveIDs)},
		{"Metadata", len(f.Metadata)}, {"SealKeys", len(f.SealKeys)},
	}
	for _, list := range lists {
		if list.n > MaxListed {
			return fmt.Errorf("letters: Filter.%s lists %d values, at most %d are possible: use several calls", list.field,
				list.n, MaxListed)
		}
	}
	for _, status := range f.Statuses {
		if err := status.validate(); err != nil {
			return fmt.Errorf("letters: Filter.Statuses: %w", err)
		}
	}
	if f.Limit < 0 || f.Limit > MaxLimit {
		return fmt.Errorf("letters: Filter.Limit is %d: it must be 0 to %d; page with After", f.Limit, MaxLimit)
	}
	if f.After < 0 || f.MaxSeq < 0 {
		return fmt.Errorf("letters: Filter.After (%d) and Filter.MaxSeq (%d) must not be negative", f.After, f.MaxSeq)
	}
	return nil
}

// validateInOrder is Validate for what takes letters in the order of Seq: if After meant the other end, it would take
// others than were meant.
func (f *Filter) validateInOrder() error {
	if f.NewestFirst {
		return errors.New("letters: Filter.NewestFirst is for List and Heads: leave it out")
	}
	return f.Validate()
}

// Matches reports whether f chooses a letter that is not in a Store. Letter.DeadLetterTopic is its topic. A letter
// without a time of failure failed now.
func (f *Filter) Matches(l poison.Letter) bool {
	failed := lastFailed(l, time.Now())
	return anyOf(f.Topics, l.Origin.Topic) &&
		!slices.Contains(f.NotTopics, l.Origin.Topic) &&
		(!f.NoOrigin || l.Origin.Topic == "") &&
		anyOf(f.DeadLetterTopics, l.DeadLetterTopic) &&
		anyOf(f.Handlers, l.Origin.Handler) &&
		anyOf(f.Classes, l.Failure.Class) &&
		anyOf(f.Reasons, l.Failure.Reason) &&
		anyOf(f.Types, l.Failure.Type) &&
		strings.Contains(l.Failure.Description, f.Description) &&
		f.matchesMetadata(l.Original) && f.matchesPayload(string(l.Original.Payload)) &&
		anyOf(f.RedriveIDs, l.Redrive.ID) &&
		(len(f.Causes) == 0 || slices.Contains(f.Causes, causeOf(l.DeadLetterTopic, &l).hash())) &&
		(f.StackHash == "" || f.StackHash == l.Failure.StackHash) &&
		anyOf(f.IDs, l.Original.UUID) &&
		(f.Since.IsZero() || !failed.Before(f.Since)) &&
		(f.Until.IsZero() || failed.Before(f.Until))
}

func (f *Filter) matchesPayload(payload string) bool {
	return f.Payload == "" || slices.ContainsFunc(spellings(f.Payload), func(text string) bool { return strings.Contains(payload, text) })
}

// escaped is what some writers of JSON escape though they need not, of characters that a person types.
var escaped = regexp.MustCompile(`(?i)\\u(00[8-9a-f][0-9a-f]|0[1-9a-f][0-9a-f]{2}|[1-9a-f][0-9a-f]{3}|003c|003e|0026)`)

// spellings are a text as it was typed, and as writers of JSON write it: as UTF-8, with \u for what is not ASCII, in
// small or capital digits, and with \u for <, > and & as Go does.
func spellings(typed string) []string {
	if !utf8.ValidString(typed) {
		return []string{typed}
	}
	plain, rest := make([]uint16, 0, len(typed)), typed // in UTF-16: \u names halves of a character
	for at := escaped.FindStringIndex(rest); at != nil; at = escaped.FindStringIndex(rest) {
		unit, _ := strconv.ParseUint(rest[at[0]+2:at[1]], 16, 16) // it matched
		plain = append(append(plain, utf16.Encode([]rune(rest[:at[0]]))...), uint16(unit))
		rest = rest[at[1]:]
	}
	plain = append(plain, utf16.Encode([]rune(rest))...)
	written := func(form string, is func(uint16) bool) string {
		var text strings.Builder
		for from := 0; from < len(plain); {
			if is(plain[from]) {
				fmt.Fprintf(&text, form, plain[from])
				from++
				continue
			}
			to := from + 1
			for to < len(plain) && !is(plain[to]) {
				to++
			}
			text.WriteString(string(utf16.Decode(plain[from:to])))
			from = to
		}
		return text.String()
	}
	foreign := func(unit uint16) bool { return unit >= utf8.RuneSelf }
	all := []string{typed, string(utf16.Decode(plain)), written(`\u%04x`, foreign), written(`\u%04X`, foreign),
		written(`\u%04x`, func(unit uint16) bool { return unit == '<' || unit == '>' || unit == '&' })}
	slices.Sort(all)
	return slices.Compact(all)
}

func (f *Filter) matchesMetadata(msg *message.Message) bool {
	for key, value := range f.Metadata {
		if got, ok := msg.Metadata[key]; !ok || got != value {
			return false
		}
	}
	return true
}

func anyOf[T comparable](list []T, value T) bool {
	return len(list) == 0 || slices.Contains(list, value)
}

func (f *Filter) statuses() []Status {
	if len(f.Statuses) == 0 {
		return []Status{StatusWaiting}
	}
	return f.Statuses
}

// direction comes behind ORDER BY.
func (f *Filter) direction() string {
	if f.NewestFirst {
		return " DESC"
	}
	return ""
}

func (f *Filter) limit() int {
	if f.Limit == 0 {
		return DefaultLimit
	}
	return f.Limit
}

// lastFailed returns when the letter failed, or when it arrived if it has no time of failure.
func lastFailed(l poison.Letter, arrived time.Time) time.Time {
	if l.Failure.LastFailedAt.IsZero() {
		return arrived
	}
	return l.Failure.LastFailedAt
}

// redrivable returns f without letters that no redrive may take. It reports whether f can choose others.
func (f Filter) redrivable() (Filter, bool) {
	if len(f.Statuses) == 0 {
		return f, true
	}
	f.Statuses = slices.DeleteFunc(slices.Clone(f.Statuses), func(s Status) bool {
		return s == StatusDiscarded || s == StatusErased
	})
	return f, len(f.Statuses) > 0
}

// present returns f without letters that were erased: they have no message any more. It reports whether f can choose
// others.
func (f Filter) present() (Filter, bool) {
	if slices.Contains(f.Statuses, StatusErased) {
		f.Statuses = slices.DeleteFunc(slices.Clone(f.Statuses), func(s Status) bool { return s == StatusErased })
		return f, len(f.Statuses) > 0
	}
	return f, true
}

// causesOnly reports whether f chooses by nothing but the status and what all letters of a cause have in common. Then
// the numbers of the causes answer how many letters f chooses, and the table of letters is not read.
func (f *Filter) causesOnly() bool {
	return f.Description == "" && f.Payload == "" && len(f.Metadata) == 0 && !f.Leased && len(f.IDs) == 0 &&
		len(f.SealKeys) == 0 && len(f.RedriveIDs) == 0 && f.Since.IsZero() && f.Until.IsZero() && f.After == 0 &&
		f.MaxSeq == 0 && len(f.unless) == 0
}

// byCause reports whether f chooses by what letters of a cause have in common.
func (f *Filter) byCause() bool {
	return len(f.Topics)+len(f.NotTopics)+len(f.DeadLetterTopics)+len(f.Handlers)+len(f.Classes)+len(f.Reasons)+
		len(f.Types)+len(f.Causes) > 0 || f.StackHash != "" || f.NoOrigin
}

// ofCauses returns f with the causes that it chooses in place of what they have in common.
func (f Filter) ofCauses(causes []string) Filter {
	f.Topics, f.NotTopics, f.DeadLetterTopics, f.Handlers, f.Classes, f.Reasons, f.Types, f.StackHash = nil, nil, nil, nil,
		nil, nil, nil, ""
	f.Causes, f.NoOrigin = causes, false
	return f
}

// common adds the conditions on what the letters of a cause have in common. Both the letters and the causes have these
// columns.
func (s *Store) common(w *where, f *Filter, prefix string) {
	anyIn(w, prefix+"origin_topic", f.Topics, asBytes)
	anyIn(w, prefix+"origin_topic NOT", f.NotTopics, asBytes)
	if f.NoOrigin {
		w.and(prefix+"origin_topic = ?", asBytes(""))
	}
	anyIn(w, prefix+"dead_letter_topic", f.DeadLetterTopics, asBytes)
	anyIn(w, prefix+"handler", f.Handlers, asBytes)
	anyIn(w, prefix+"class", f.Classes, func(class classify.Class) any { return s.db.Text(class.String()) })
	anyIn(w, prefix+"reason", f.Reasons, s.db.Bytes)
	anyIn(w, prefix+"type", f.Types, s.db.Bytes)
	anyIn(w, prefix+"cause", f.Causes, s.readable)
	if f.StackHash != "" {
		w.and(prefix+"stack_hash = ?", s.db.Bytes(f.StackHash))
	}
}

// numbers are the tables of numbers and causes together, with the conditions of f on them. letters is the number of
// those that f chooses in one row.
func (s *Store) numbers(f Filter) (tables, letters string, w *where) {
	w = new(where)
	w.and("n.service = ?", asBytes(s.service))
	s.common(w, &f, "c.")
	statuses := f.statuses()
	columns := make([]string, len(statuses))
	for i, status := range statuses {
		columns[i] = "n." + string(status) // validated: one of the constants
	}
	return `spillway_letter_counts AS n JOIN spillway_letter_causes AS c ON c.service = n.service AND c.cause = n.cause`,
		`SUM(` + strings.Join(columns, " + ") + `)`, w
}

// maxCauses is how many causes a statement names. A filter that chooses more is applied to each letter instead.
const maxCauses = MaxListed

// causes returns the causes that have letters which f chooses, at most maxCauses and one more, and the number of these
// letters.
func (s *Store) causes(ctx context.Context, f Filter) (causes []string, letters int, err error) {
	tables, number, w := s.numbers(f)
	err = s.read(ctx, func() { causes, letters = nil, 0 }, func(rows *sql.Rows) error {
		var cause string
		var n int
		err := rows.Scan(&cause, &n)
		causes, letters = append(causes, cause), letters+n
		return err
	}, `SELECT n.cause, `+number+` FROM `+tables+w.String()+` GROUP BY n.cause HAVING `+number+` > 0 LIMIT ?`,
		append(w.args, maxCauses+1)...)
	return causes, letters, err
}
