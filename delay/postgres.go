package delay

import (
	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/internal/database/postgres"
)

var postgresDialect = dialect{
	kind:  database.Postgres,
	query: postgres.Numbered,
	// When the statement came in: a clock that may change from row to row could not be looked up in an index, and that of
	// the transaction may be of long ago.
	now:         `(extract(epoch FROM statement_timestamp()) * 1000000)::bigint`,
	skip:        ` FOR UPDATE SKIP LOCKED`,
	behind:      byRow,
	after:       ofRow,
	among:       postgresAmong,
	write:       unless(postgres.Undone),
	transaction: postgres.Write,
	read:        once,
	tooLarge:    func(err error) bool { return postgres.State(err) == programLimitExceeded },
}

const programLimitExceeded = "54000"

// postgresAmong binds all numbers as one array: drivers keep prepared statements by their text.
func postgresAmong(seqs []int64) (string, []any) {
	list := appendNumbers([]byte{'{'}, seqs)
	return `seq = ANY (CAST(CAST(? AS text) AS bigint[]))`, []any{string(append(list, '}'))}
}
