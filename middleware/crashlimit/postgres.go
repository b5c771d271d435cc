package crashlimit

import (
	"github.com/watermill-spillway/spillway/internal/database"
	"github.com/watermill-spillway/spillway/internal/database/postgres"
)

var postgresDialect = dialect{
	kind:    database.Postgres,
	query:   postgres.Numbered,
	text:    asText, // keys.Column leaves nothing that a text cannot hold
	now:     `(extract(epoch FROM clock_timestamp()) * 1000)::bigint`,
	enter:   enterMark,
	sweep:   sweepMarks,
	write:   unless(postgres.Undone),
	read:    once,
	timeout: statementTimeout,
}
