package letters

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/codec/metadatacodec"
	"github.com/watermill-spillway/spillway/poison"
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

// ofBody is the metadata or the payload of a letter.
func ofBody(column string) string {
	return `(SELECT ` + column + ` FROM spillway_letter_bodies WHERE body = ` + bodyOf + `)`
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
		either := new(where)
		for _, text := range spellings(f.Payload) {
			either.and(s.statements.contains(ofBody("payload")), []byte(text))
		}
		w.and("("+strings.Join(either.conditions, " OR ")+")", either.args...)
	}
	if !f.Since.IsZero() {
		w.and("last_failed_at >= ?", f.Since.UnixMicro())
	}
	if !f.Until.IsZero() {
		w.and("last_failed_at < ?", f.Until.UnixMicro())
	}
	return w
}

const (
	maxFolded  = 512     // bytes of a description that count for its cause
	maxUnfold  = 4 << 10 // bytes of a description that are looked at
	foldedWord = "#"
	foldedText = `""`
)

// folded returns the description without what differs from message to message. Words with a digit (numbers, times, ids,
// UUIDs, hex), ids with a prefix, e-mail addresses and time zones become one sign, quoted texts another, and white
// space one space. At most maxFolded bytes of it count.
//
// A change of this function changes the causes of letters that are in tables already. Such a change needs a version of
// the table whose SQL empties the column cause: NewStore and Groups then compute it again.
func folded(description string) string {
	rest := description[:min(len(description), maxUnfold)]
	var b strings.Builder
	previous, zone := ' ', false // zone: a time came just before
	for len(rest) > 0 && b.Len() < maxFolded {
		r, width := utf8.DecodeRuneInString(rest)
		if n := quoted(rest, r, previous); n > 0 {
			b.WriteString(foldedText)
			previous, zone, rest = '"', false, rest[n:]
			continue
		}
		if n := address(rest); n > 0 {
			b.WriteString(foldedWord)
			previous, zone, rest = 'a', false, rest[n:]
			continue
		}
		if n, varies := word(rest); n > 0 {
			if varies || zone && isZone(rest[:n]) {
				b.WriteString(foldedWord)
			} else {
				b.WriteString(rest[:n])
			}
			previous, zone, rest = 'a', varies && (strings.ContainsRune(rest[:n], ':') || isSign(rest[0])), rest[n:]
			continue
		}
		if unicode.IsSpace(r) {
			if previous != ' ' {
				b.WriteByte(' ')
			}
			r = ' '
		} else {
			b.WriteString(rest[:width])
			zone = false
		}
		previous, rest = r, rest[width:]
	}
	return strings.TrimSpace(b.String()[:min(b.Len(), maxFolded)])
}

// closing are the quotes of two kinds. An opening quote that is a closing one in another language opens nothing.
var closing = map[rune]rune{'«': '»', '‹': '›', '“': '”', '„': '“', '‘': '’'}

// quoted returns the length of the quoted text that s begins with, or 0. A text that was cut may lack its end. An
// apostrophe within a word, or without another one, quotes nothing. A quote that is written twice stands for itself.
func quoted(s string, mark, previous rune) int {
	if end, ok := closing[mark]; ok {
		if n := strings.IndexRune(s, end); n > 0 {
			return n + utf8.RuneLen(end)
		}
		return 0
	}
	if mark != '"' && mark != '`' && mark != '\'' || mark == '\'' && previous == 'a' {
		return 0
	}
	quote := byte(mark)
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && quote == '"', s[i] == quote && i+1 < len(s) && s[i+1] == quote:
			i++
		case s[i] == quote && (quote != '\'' || !startsWord(s[i+1:])):
			return i + 1
		}
	}
	if quote == '\'' {
		return 0
	}
	return len(s)
}

// maxLocal is the longest part of an address before its "@".
const maxLocal = 64

// address returns the length of the e-mail address that s begins with, or 0.
func address(s string) int {
	at := run(s[:min(len(s), maxLocal+1)], "._%+-")
	if at == 0 || at >= len(s) || s[at] != '@' {
		return 0
	}
	domain := run(s[at+1:], ".-")
	for domain > 0 && !isWordByte(s[at+domain]) {
		domain--
	}
	if domain == 0 {
		return 0
	}
	return at + 1 + domain
}

// run returns how many bytes at the beginning of s are of words, or among others.
func run(s, others string) int {
	for i, r := range s {
		if !isWord(r) && !strings.ContainsRune(others, r) {
			return i
		}
	}
	return len(s)
}

// word returns the length of the word that s begins with, or 0, and reports whether the word differs from message to
// message. A hyphen belongs to a word within it, and so does a point, colon, comma or plus between two digits, and a sign
// before a digit.
func word(s string) (n int, varies bool) {
	if len(s) > 1 && isSign(s[0]) && isDigit(s[1]) {
		n = 1
	}
	for n < len(s) {
		r, width := utf8.DecodeRuneInString(s[n:])
		switch {
		case isWord(r):
			varies = varies || unicode.IsDigit(r)
		case n > 0 && r == '-' && startsWord(s[n+1:]):
		case n > 0 && n+1 < len(s) && strings.ContainsRune(".:,+", r) && isDigit(s[n-1]) && isDigit(s[n+1]):
		default:
			return n, varies || isPrefixed(s[:n])
		}
		n += width
	}
	return n, varies || isPrefixed(s[:n])
}

// isPrefixed reports whether a word is an id behind a prefix, such as cus_NffrFeUfNV: of capitals and small letters mixed,
// as they are in no name of a program or a table.
func isPrefixed(word string) bool {
	prefix, id, ok := strings.Cut(word, "_")
	if !ok || prefix == "" || len(id) < 8 || strings.ContainsRune(id, '_') {
		return false
	}
	rises, pairs := 0, 0 // from a small letter to a capital, and from a capital to the next
	for i := 1; i < len(id); i++ {
		if isUpper(id[i]) && isLower(id[i-1]) {
			rises++
		} else if isUpper(id[i]) && isUpper(id[i-1]) {
			pairs++
		}
	}
	return rises >= 2 && pairs >= 1 && !strings.ContainsFunc(prefix, unicode.IsUpper)
}

// isZone reports whether a word behind a time can be the name of its time zone, such as UTC or CEST.
func isZone(word string) bool {
	return len(word) >= 3 && len(word) <= 5 && !strings.ContainsFunc(word, func(r rune) bool { return r < 'A' || r > 'Z' })
}

func startsWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return s != "" && isWord(r)
}

func isWord(r rune) bool {
	return r == '_' || r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r))
}

func isWordByte(c byte) bool { return c >= utf8.RuneSelf || isWord(rune(c)) }
func isDigit(c byte) bool    { return c >= '0' && c <= '9' }
func isLower(c byte) bool    { return c >= 'a' && c <= 'z' }
func isUpper(c byte) bool    { return c >= 'A' && c <= 'Z' }
func isSign(c byte) bool     { return c == '-' || c == '+' }

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

// candidate is a letter that a filter may choose.
type candidate struct {
	seq, first, last int64
	size             int
	cause            string
}

// scan calls add with the letters that f chooses, in their order, until add returns false. If f asks for metadata, it reads
// those of all candidates. Otherwise it ends after the first n, of which only the Seq is known, and the size if it is
// asked for: an index alone may know the letters.
func (s *Store) scan(ctx context.Context, f Filter, free, sized bool, n int, add func(candidate) (more bool)) error {
	r, err := s.routeOf(ctx, f)
	if err != nil {
		return err
	}
	atOnce, columns, newest := n, `0, '', 0, 0, NULL`, f.NewestFirst
	switch {
	case len(f.Metadata) > 0:
		atOnce, columns = candidatesAtOnce, `size, cause, first_failed_at, last_failed_at, `+ofBody("metadata")
	case sized:
		columns = `size, '', 0, 0, NULL`
	}
	return s.each(ctx, r, func(f Filter) (more bool, err error) {
		for {
			w := s.where(f)
			if free {
				w = s.free(f)
			}
			var found []candidate
			looked, last := 0, int64(0)
			err := s.readPlanned(ctx, func() { found, looked = nil, 0 }, func(rows *sql.Rows) error {
				var c candidate
				var packed []byte
				err := rows.Scan(&c.seq, &c.size, &c.cause, &c.first, &c.last, &packed)
				looked, last = looked+1, c.seq
				if err == nil && (len(f.Metadata) == 0 || f.hasMetadata(packed)) {
					found = append(found, c)
				}
				return err
			}, `SELECT seq, `+columns+`
FROM spillway_dead_letters`+r.hint+w.String()+` ORDER BY `+r.order+` LIMIT ?`, append(w.args, atOnce)...)
			if err != nil {
				return false, err
			}
			for _, c := range found {
				if !add(c) {
					return false, nil
				}
			}
			if looked < atOnce || newest && last <= 1 {
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
