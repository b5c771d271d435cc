package crashlimit

import (
	"github.com/watermill-spillway/spillway/internal/database/postgres"
	"github.com/watermill-spillway/spillway/internal/database/schema"
)

var postgresDialect = dialect{
	tables:  postgresTables,
	ensure:  postgres.Ensure,
	query:   postgres.Numbered,
	text:    asText, // keys.Column leaves nothing that a text cannot hold
	now:     `(extract(epoch FROM clock_timestamp()) * 1000)::bigint`,
	enter:   enterMark,
	sweep:   sweepMarks,
	write:   unless(postgres.Undone),
	read:    once,
	timeout: statementTimeout,
}

// postgresTables compare their keys by bytes, whatever the database's collation is. The table of processes is written at
// every beat: room in its pages keeps those updates out of its index.
var postgresTables = []schema.Table{
	{Name: processTable, Columns: processColumns, Key: processKey, Create: []string{`CREATE TABLE IF NOT EXISTS spillway_processes (
	service    text COLLATE "C" NOT NULL,
	id         text COLLATE "C" NOT NULL PRIMARY KEY,
	node       text   NOT NULL,
	beat_ms    bigint NOT NULL,
	started_at bigint NOT NULL,
	beats      bigint NOT NULL,
	lost_at    bigint
) WITH (fillfactor = 50)`}},
	{Name: deliveryTable, Columns: deliveryColumns, Key: deliveryKey, Create: []string{`CREATE TABLE IF NOT EXISTS spillway_deliveries (
	service    text COLLATE "C" NOT NULL,
	consumer   text COLLATE "C" NOT NULL,
	id         text COLLATE "C" NOT NULL,
	redrives   bigint NOT NULL,
	delivery   bigint NOT NULL,
	process    text   NOT NULL,
	marked_at  bigint NOT NULL,
	PRIMARY KEY (service, consumer, id, redrives, delivery)
)`}},
}
