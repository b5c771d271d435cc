package wmsql_test

import (
	"database/sql"
	"strings"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql/mysqltest"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres/postgrestest"
	"github.com/watermill-spillway/spillway/internal/testing/testkit"
	"github.com/watermill-spillway/spillway/internal/testing/testkit/databases"
)

func (b *bench) isPostgres() bool { return b.kind.Name == databases.Postgres.Name }

// sql chooses a statement by database.
func (b *bench) sql(postgres, mysql string) string {
	if b.isPostgres() {
		return postgres
	}
	return mysql
}

func (b *bench) exec(query string, args ...any) {
	b.Helper()
	testkit.NoError(b, testkit.Err(b.db.Exec(query, args...)))
}

// ask returns the one number that a query finds.
func (b *bench) ask(query string, args ...any) (n int) {
	b.Helper()
	testkit.NoError(b, b.db.QueryRow(query, args...).Scan(&n))
	return n
}

// table names the table of a topic.
func (b *bench) table(topic string) string {
	return b.sql(wsql.DefaultPostgreSQLSchema{}.MessagesTable(topic), wsql.DefaultMySQLSchema{}.MessagesTable(topic))
}

// rows counts those of a topic's table.
func (b *bench) rows(topic string) int {
	b.Helper()
	return b.ask(`SELECT count(*) FROM ` + b.table(topic))
}

func (b *bench) offsetsTable() string {
	return b.sql(wsql.DefaultPostgreSQLOffsetsAdapter{}.MessagesOffsetsTable(b.topic),
		wsql.DefaultMySQLOffsetsAdapter{}.MessagesOffsetsTable(b.topic))
}

// begin begins a transaction beside the code under test, which ends with the test.
func (b *bench) begin() *sql.Tx {
	b.Helper()
	tx := testkit.Must(b.db.Begin())
	b.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// held reports whether a transaction holds the position of the group without a name.
func (b *bench) held() bool {
	b.Helper()
	tx := testkit.Must(b.db.Begin())
	defer func() { _ = tx.Rollback() }()
	query := `SELECT consumer_group FROM ` + b.offsetsTable() + ` WHERE consumer_group = '' FOR UPDATE NOWAIT`
	err := tx.QueryRow(query).Scan(new(string))
	testkit.Require(b, err == nil || strings.Contains(err.Error(), "could not obtain lock") ||
		strings.Contains(err.Error(), "1205"),
		"%v", err)
	return err != nil
}

// waits reports whether a statement of the test's database waits for another's lock.
func (b *bench) waits(postgres, mysql string) bool {
	b.Helper()
	return b.ask(b.sql(`SELECT count(*) FROM pg_stat_activity
		WHERE wait_event_type = 'Lock' AND datname = current_database() AND query LIKE '`+postgres+`'`,
		`SELECT count(*) FROM information_schema.processlist
		WHERE db = database() AND time_ms > 50 AND info LIKE '`+mysql+`'`)) > 0
}

// sleep is a statement that takes seconds.
func (b *bench) sleep(seconds string) string {
	return b.sql(`SELECT pg_sleep(`+seconds+`)`, `DO SLEEP(`+seconds+`)`)
}

// kill ends the connection of a message's transaction on the server.
func (b *bench) kill(msg *message.Message) error {
	b.Helper()
	var id int
	err := txOf(msg.Context()).QueryRow(b.sql(`SELECT pg_backend_pid()`, `SELECT CONNECTION_ID()`)).Scan(&id)
	switch {
	case err != nil:
	case b.isPostgres():
		postgrestest.Kill(b, b.db, id)
	default:
		mysqltest.Kill(b, b.db, int64(id))
	}
	return err
}

// cutOff kills the connection, and returns what the next statement meets.
func (b *bench) cutOff(msg *message.Message) error {
	b.Helper()
	if err := b.kill(msg); err != nil {
		return err
	}
	_, err := txOf(msg.Context()).Exec(`DELETE FROM effects`)
	testkit.Check(b, err != nil, "the connection lives")
	return err
}
