package wmsql

import (
	"context"
	"database/sql"
	"fmt"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres"
)

// serverColumn is in PostgreSQL's table of positions, beside the position. It holds the identifier of the server that
// the position is of, or that the position was refused, or null. watermill-sql names its columns, and never meets this
// one.
const serverColumn = "spillway_server"

// identity reads the identifier that initdb gave the server. A copy of the files keeps it; another server has another.
const identity = `(SELECT system_identifier::text FROM pg_control_system())`

// introduce finds out whether the role may read the server's identifier, which tells servers apart.
func (s postgresSource) introduce(ctx context.Context, db *sql.DB) (source, error) {
	_, err := db.ExecContext(ctx, `SELECT `+identity)
	if err != nil && postgres.State(err) == "" {
		return s, err
	}
	s.identity = identity
	if err != nil {
		s.identity = `NULL::text`
	}
	return s, nil
}

// noteColumn adds the column unless it is there. It looks first: ALTER TABLE waits for every consumer that has a
// position locked, and all others wait behind it.
func (s postgresSource) noteColumn(ctx context.Context, db *sql.DB, topic string) error {
	if noted, err := s.notes(ctx, db, topic); noted || err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, `SET LOCAL lock_timeout = '2s'`); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx,
		`ALTER TABLE `+s.offsets.MessagesOffsetsTable(topic)+` ADD COLUMN IF NOT EXISTS `+serverColumn+` TEXT`); err != nil {
		return err
	}
	return tx.Commit()
}

// notes reports whether the table of positions has the column.
func (s postgresSource) notes(ctx context.Context, db *sql.DB, topic string) (noted bool, err error) {
	err = db.QueryRowContext(ctx,
		`SELECT EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname = $2 AND NOT attisdropped)`,
		s.offsets.MessagesOffsetsTable(topic), serverColumn).Scan(&noted)
	return noted, err
}

// note is what is known of the server beside a position.
type note struct {
	kept             bool // there is a column for it
	recorded, server sql.NullString
}

// doubts reports whether the position was refused, or is of another server.
func (n note) doubts(at position) bool {
	return n.recorded.String == refusedAt(at) || n.moved()
}

// moved reports whether the server is known to be another one.
func (n note) moved() bool {
	return n.recorded.Valid && n.server.Valid && !isRefusal(n.recorded.String) && n.recorded.String != n.server.String
}

// missing reports whether the server has yet to be recorded. A refusal of another position was answered: a person has
// set the position since.
func (n note) missing(at position) bool {
	return n.kept && n.recorded != n.server && !n.doubts(at) && (n.server.Valid || isRefusal(n.recorded.String))
}

const refusal = "refused at "

// refusedAt is what is recorded of a refusal. It names the position, so that it is void once the position was set.
func refusedAt(at position) string { return fmt.Sprintf("%s%d/%d", refusal, at.transaction, at.offset) }

func isRefusal(recorded string) bool {
	return len(recorded) >= len(refusal) && recorded[:len(refusal)] == refusal
}

// columns are those of a note, of the table of positions p. A column that is not there is null in JSON.
func (s postgresSource) columns() string {
	server := s.identity
	if server == "" {
		server = `NULL::text`
	}
	return `jsonb_exists(to_jsonb(p), '` + serverColumn + `'), to_jsonb(p) ->> '` + serverColumn + `', ` + server
}

// refuse records that the position was refused, so that it stays refused when the server's ids have passed it.
func (s postgresSource) refuse(ctx context.Context, db *sql.DB, topic, group string,
	at position) (done bool, err error) {
	if noted, err := s.notes(ctx, db, topic); !noted || err != nil {
		return false, err
	}
	_, err = db.ExecContext(ctx, `UPDATE `+s.offsets.MessagesOffsetsTable(topic)+` SET `+serverColumn+` = $2
WHERE consumer_group = $1 AND last_processed_transaction_id = $3::bigint::text::xid8 AND COALESCE(offset_acked, 0) = $4::bigint
	AND `+serverColumn+` IS DISTINCT FROM $2`, group, refusedAt(at), at.transaction, at.offset)
	return err == nil, err
}

// accept records that the position is one of this server.
func (s postgresSource) accept(ctx context.Context, db *sql.DB, topic, group string) (done bool, err error) {
	if noted, err := s.notes(ctx, db, topic); !noted || err != nil {
		return false, err
	}
	_, err = db.ExecContext(ctx,
		`UPDATE `+s.offsets.MessagesOffsetsTable(topic)+` SET `+serverColumn+` = `+s.identity+` WHERE consumer_group = $1`,
		group)
	return err == nil, err
}

// passedOver selects whether another server published what is behind the position: the number of such a message is
// higher, since numbers go on, and its transaction id is lower.
func (s postgresSource) passedOver(topic string, at position) wsql.Query {
	return wsql.Query{
		Query: `SELECT EXISTS (SELECT 1 FROM ` + s.schema.MessagesTable(topic) +
			` WHERE transaction_id < $1::bigint::text::xid8 AND "offset" > $2::bigint)`,
		Args: []any{at.transaction, at.offset},
	}
}
