package letters

import (
	"context"

	"github.com/watermill-spillway/spillway/internal/database/postgres"
)

var postgresDialect = dialect{
	query: postgres.Numbered,
	text:  asBytes, // a text may not hold NUL, nor what is not UTF-8
	// The number that the letter would have as a new one is behind all others that were given out.
	insert:   insertLetter(`excluded.seq`),
	toBack:   `UPDATE spillway_dead_letters SET seq = DEFAULT WHERE seq = ?`,
	now:      `(extract(epoch FROM statement_timestamp()) * 1000000)::bigint`,
	lock:     ` FOR UPDATE SKIP LOCKED`,
	contains: `position(?::bytea IN description) > 0`,
	// Two that write the same letters in different orders would wait for each other. So each waits for the other to end
	// first: a deadlock costs a second, and a crowd of them never ends. The first number is "spil" in ASCII.
	several:  `SELECT pg_advisory_xact_lock(1936746860, 'spillway_dead_letters'::regclass::oid::int)`,
	tooLarge: func(err error, _, _ int) bool { return postgres.State(err) == postgresLimitExceeded },
	write:    postgres.Write,
	patience: func(_ context.Context, read func() error) error { return read() }, // readers wait for nobody
}

// postgresLimitExceeded is the SQLSTATE program_limit_exceeded: a value has more than 1 GB.
const postgresLimitExceeded = "54000"
