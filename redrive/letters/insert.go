package letters

import "strings"

// conflict is how a database says what becomes of a row that is there already: the words that begin it, and the name of
// a column's new and of its old value.
type conflict struct {
	begin, newBefore, newAfter, old string
}

var (
	onConflict  = conflict{`ON CONFLICT (identity) DO UPDATE SET`, `excluded.`, ``, `spillway_dead_letters.`}
	onDuplicate = conflict{`ON DUPLICATE KEY UPDATE`, `VALUES(`, `)`, ``}
)

// insert stores a letter, or notes that one arrived again. A letter that was redriven or discarded waits again then, behind
// all others, so that a drain that is running does not meet it twice. The holder of a lease loses it: what it is about to mark
// may be the redrive that failed again just now, if its redrive count was lost on the way. Better a letter too many, which
// the receiver absorbs, than one too few.
//
// MySQL assigns from left to right, and reads what it has assigned already: seq comes before status, which it looks at.
// behind is a number behind all that were given out, as the letter would have it as a new one.
func insert(c conflict, behind string) string {
	var s strings.Builder
	s.WriteString(`
INSERT INTO spillway_dead_letters (identity, dead_letter_topic, id, metadata, payload,
	origin_topic, handler, class, reason, type, stack_hash, description, first_failed_at, last_failed_at, stored_at,
	service, cause, size, arrived_redrive_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
` + c.begin)
	for _, column := range []string{
		"dead_letter_topic", "metadata", "class", "reason", "type", "stack_hash", "description", "cause", "size",
		"arrived_redrive_id", "first_failed_at", "last_failed_at",
	} {
		s.WriteString("\n\t" + column + " = " + c.newBefore + column + c.newAfter + ",")
	}
	s.WriteString(strings.NewReplacer("old.", c.old, "behind()", behind).Replace(`
	seen         = old.seen + 1,
	token        = '',
	leased_until = 0,
	seq          = CASE WHEN old.status IN ('redriven', 'discarded') THEN behind() ELSE old.seq END,
	status       = CASE WHEN old.status IN ('redriven', 'discarded') THEN 'waiting' ELSE old.status END`))
	return s.String()
}
