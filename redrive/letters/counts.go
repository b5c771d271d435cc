package letters

import (
	"slices"
	"strings"
)

// upsert is how a database names the old and the new values of a row that is there already, and joins texts.
type upsert struct {
	begin, newBefore, newAfter, old string
	join                            func(texts ...string) string
}

var (
	countsConflict = upsert{"ON CONFLICT (service, cause, slot) DO UPDATE SET", "excluded.", "", "spillway_letter_counts.",
		func(texts ...string) string { return strings.Join(texts, " || ") }}
	countsDuplicate = upsert{"ON DUPLICATE KEY UPDATE", "VALUES(", ")", "",
		func(texts ...string) string { return "CONCAT(" + strings.Join(texts, ", ") + ")" }}
)

// counted are the columns that a transaction adds to.
func counted() (columns []string) {
	for _, status := range Statuses() {
		columns = append(columns, string(status))
	}
	return append(columns, "arrived", "first_failed_at", "last_failed_at", "last_seq", "minute", "in_minute")
}

// countInto begins a statement that counts.
func countInto() string {
	return "INSERT INTO spillway_letter_counts (service, cause, slot, " + strings.Join(counted(), ", ") +
		", minute_before)\n"
}

// countStatement adds to the numbers of one cause in one slot.
func countStatement(u upsert) string {
	marks := slices.Repeat([]string{"?"}, len(counted())+3)
	return countInto() + "VALUES (" + strings.Join(marks, ", ") + ", 0)\n" + u.add()
}

// add is what becomes of a row that is there. MySQL assigns from left to right, and reads what it has assigned already:
// minute comes last.
func (u upsert) add() string {
	var sets, names []string
	for _, status := range Statuses() {
		sets = append(sets, strings.ReplaceAll("status = old.status + new(status)", "status", string(status)))
	}
	sets = append(sets,
		"arrived = old.arrived + new(arrived)",
		"first_failed_at = CASE WHEN new(first_failed_at) < old.first_failed_at THEN new(first_failed_at) ELSE "+
			"old.first_failed_at END",
		"last_failed_at = CASE WHEN new(last_failed_at) > old.last_failed_at THEN new(last_failed_at) ELSE "+
			"old.last_failed_at END",
		"last_seq = CASE WHEN new(last_seq) > old.last_seq THEN new(last_seq) ELSE old.last_seq END",
		"minute_before = CASE WHEN new(minute) <= old.minute THEN old.minute_before WHEN new(minute) = old.minute + 1 THEN "+
			"old.in_minute ELSE 0 END",
		"recent = CASE WHEN new(minute) <= old.minute THEN old.recent WHEN new(minute) > old.minute + 60 THEN '' ELSE "+
			"SUBSTR("+u.join("(old.minute % 1000)", "':'", "old.in_minute", "' '", "old.recent")+", 1, 720) END",
		"in_minute = CASE WHEN new(minute) <= old.minute THEN old.in_minute + new(in_minute) ELSE new(in_minute) END",
		"minute = CASE WHEN new(minute) > old.minute THEN new(minute) ELSE old.minute END",
	)
	for _, column := range counted() {
		names = append(names, "new("+column+")", u.newBefore+column+u.newAfter)
	}
	return u.begin + "\n\t" + strings.NewReplacer(append(names, "old.", u.old)...).Replace(strings.Join(sets, ",\n\t"))
}
