package letters

import (
	"context"

	"github.com/watermill-spillway/spillway/internal/database/mysql"
)

// mysqlDialect is for MySQL and MariaDB. A transaction that was in another's way runs again: the server notices that at
// once, so it needs no lock in front of those that write more than one letter.
var mysqlDialect = dialect{
	query:    func(statement string) string { return statement },
	text:     asBytes, // so that no character set of the connection touches it
	insert:   newLetter + mysqlAgain,
	toBack:   mysqlToBack,
	now:      `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`,
	byKey:    ` FORCE INDEX (PRIMARY)`, // of a small table the server would rather read, and so lock, all rows
	lock:     ` FOR UPDATE SKIP LOCKED`,
	contains: `LOCATE(?, description) > 0`,
	limit:    mysqlLimit,
	tooLarge: mysqlTooLarge,
	write:    mysql.Write,
	patience: func(_ context.Context, read func() error) error { return read() }, // readers wait for nobody
}

// mysqlAgain is what insertLetter says of a conflict. MySQL assigns from left to right, and reads what it has assigned
// already: seq comes before status, which it looks at. VALUES(seq) is the number that the letter would have as a new one.
const mysqlAgain = `
ON DUPLICATE KEY UPDATE
	dead_letter_topic = VALUES(dead_letter_topic),
	metadata          = VALUES(metadata),
	class             = VALUES(class),
	reason            = VALUES(reason),
	type              = VALUES(type),
	stack_hash        = VALUES(stack_hash),
	description       = VALUES(description),
	cause             = VALUES(cause),
	size              = VALUES(size),
	arrived_redrive_id = VALUES(arrived_redrive_id),
	first_failed_at   = VALUES(first_failed_at),
	last_failed_at    = VALUES(last_failed_at),
	seen              = seen + 1,
	token             = '',
	leased_until      = 0,
	seq               = CASE WHEN status IN ('redriven', 'discarded') THEN VALUES(seq) ELSE seq END,
	status            = CASE WHEN status IN ('redriven', 'discarded') THEN 'waiting' ELSE status END`

// mysqlToBack lets the letter conflict with itself, for a number that nobody else was given: one that UPDATE makes up
// would be given out again by MariaDB, and the letter that got it would overwrite this one.
const mysqlToBack = `
INSERT INTO spillway_dead_letters (identity, dead_letter_topic, id, metadata, origin_topic, handler, class, reason, type,
	stack_hash, description, first_failed_at, last_failed_at, stored_at)
SELECT identity, '', '', '', '', '', '', '', '', '', '', 0, 0, 0 FROM spillway_dead_letters WHERE seq = ?
ON DUPLICATE KEY UPDATE seq = VALUES(seq)`
