package wmsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
)

// dialect is what differs between the databases. What an error means is for functions, whose argument may be nil.
type dialect struct {
	kind database.Kind
	name string
	// aborts says that after a failed statement the database refuses all others, up to a rollback to a savepoint.
	aborts bool
	// ends reports whether the whole transaction has ended with this error, and whether other transactions, or the
	// server, are the reason.
	ends func(error) (ended, others bool)
	// noSavepoint reports whether there is no such savepoint: its transaction has ended.
	noSavepoint func(error) bool
	// missing reports whether a table does not exist.
	missing func(error) bool
	// raced reports whether a table could not be created because another session was creating it.
	raced func(error) bool
	// note notes the role and the search path, if the database has them, for keytable.RestorePostgres.
	note string
	// endless says that the driver's Commit and Rollback have no bound in time. Both are only statements there.
	endless bool
	// gaps says that messages become visible out of order.
	gaps bool
	// answered reports whether an error is the server's answer.
	answered func(error) bool
	// maxName is the longest name of a table, in bytes.
	maxName int
	// maxStatement is the longest statement with its arguments, in bytes. A server closes the connection on which a
	// longer one comes, and the transaction ends with it, on every attempt anew.
	maxStatement int
	// large reports whether the server, or the driver, refused a statement for its size.
	large func(error) bool
	// refused reports whether a column can never take a value, whatever its size.
	refused func(error) bool
	// The keys of idempotent receivers.
	inKeys *keytable.Dialect

	schema  func(payloadType string, batch int) wsql.SchemaAdapter
	offsets wsql.OffsetsAdapter
	// binary is the type of a payload that may be any bytes.
	binary string
	// source knows the tables of watermill-sql's default schema. Another one, or nil, is not ok.
	source func(wsql.SchemaAdapter) (source, bool)
}

// schemaOf returns the schema of a Config, or the default one, with the queries for it.
func (d *dialect) schemaOf(field string, schema wsql.SchemaAdapter, batch int) (wsql.SchemaAdapter, source, error) {
	if schema == nil {
		schema = d.schema(d.binary, batch)
	}
	source, ok := d.source(schema)
	if !ok {
		return nil, nil, fmt.Errorf("wmsql: %s is a %T: on %s it must be watermill-sql's own schema, whose tables are read and "+
			"locked by queries of this package; leave the field out, or set fields of wsql.Default%sSchema", field, schema, d.name, d.name)
	}
	return schema, source, nil
}

// checkSize refuses a statement for which the server would close the connection.
func (d *dialect) checkSize(size int) error {
	if d.maxStatement > 0 && size+statementOverhead > d.maxStatement {
		return fmt.Errorf("wmsql: the statement has %d bytes, and %s takes %d: %w", size, d.name, d.maxStatement,
			classify.ErrTooLarge)
	}
	return nil
}

// source has the queries for watermill-sql's tables. They are better than those of its adapters.
type source interface {
	// refuse makes a position that was refused one that stays refused, if time would erase the evidence.
	refuse(ctx context.Context, db *sql.DB, topic, group string, at position) (done bool, err error)
	// register gives the group a row to lock, unless it has one.
	register(topic, group string) wsql.Query
	// registered counts the rows of the group, and does not wait for a lock.
	registered(topic, group string) wsql.Query
	// position returns how far the group is, and whether that is possible. With forUpdate for lock it waits for the
	// group's row, and locks it.
	position(ctx context.Context, db *sql.DB, topic, group, lock string) (position, trust, error)
	// evidence returns what shows that a position is not of this table, or "".
	evidence(ctx context.Context, db *sql.DB, topic string, at position, trust trust) (string, error)
	// restart sets the group back to the start of the table.
	restart(topic, group string) []wsql.Query
	// acknowledge moves the position behind a row.
	acknowledge(topic, group string, row wsql.Row) wsql.Query
	// next selects at most n messages behind a position.
	next(topic string, from position, n int) wsql.Query
	// between reads the rows between two numbers, and does not wait for a lock. Only where there are gaps.
	between(topic string, first, behind int64) wsql.Query
	// highest is the highest number in the table. Only where there are gaps.
	highest(topic string) wsql.Query
	// all counts the messages.
	all(topic string) wsql.Query
	// behind counts what comes behind the group's position.
	behind(topic, group string) wsql.Query
}

const forUpdate = ` FOR UPDATE`

// position is how far a group is, or where a message stands.
type position struct {
	transaction, offset int64
}

// detect asks db which database it is, and returns its dialect.
func detect(ctx context.Context, db *sql.DB) (*dialect, error) {
	found, err := database.Detect(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("wmsql: %w", err)
	}
	switch found.Kind() {
	case database.Postgres:
		return &postgresDialect, nil
	case database.MySQL:
		d := mysqlDialect
		if err := db.QueryRowContext(ctx, `SELECT @@max_allowed_packet`).Scan(&d.maxStatement); err != nil {
			return nil, fmt.Errorf("wmsql: ask the database for its max_allowed_packet: %w", err)
		}
		return &d, nil
	}
	return nil, fmt.Errorf("wmsql: the database is %s: topics are tables on PostgreSQL, MySQL or MariaDB; on %[1]s use "+
		"another pub/sub", found.Kind())
}

// unfit matches the characters that watermill-sql refuses in topics, because topics are parts of table names.
var unfit = regexp.MustCompile(`[^A-Za-z0-9\-$:._]`)

// fit returns an error if a topic cannot be a table, or if the database would cut its name short: two topics would
// share one table.
func (d *dialect) fit(topic string, adapters ...any) error {
	if topic == "" {
		return errors.New("wmsql: the topic has no name")
	}
	if unfit.MatchString(topic) {
		return fmt.Errorf("wmsql: topic %.100q cannot be a table: allowed are letters of ASCII, digits and - $ : . _",
			topic)
	}
	for _, adapter := range adapters {
		table := ""
		switch a := adapter.(type) { // those that embed watermill-sql's too
		case interface{ MessagesTable(string) string }:
			table = a.MessagesTable(topic)
		case interface{ MessagesOffsetsTable(string) string }:
			table = a.MessagesOffsetsTable(topic)
		}
		name := table[strings.LastIndexAny(strings.TrimRight(table, "\"`"), "\"`")+1:]
		if name = strings.Trim(name, "\"`"); len(name) > d.maxName {
			return fmt.Errorf("wmsql: topic %.100q needs the table %.200q, whose name is longer than the %d bytes of %s: two "+
				"topics could share one table; choose a shorter topic", topic, name, d.maxName, d.name)
		}
	}
	return nil
}
