package wmsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/postgres"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
)

var postgresDialect = dialect{
	kind:   database.Postgres,
	name:   "PostgreSQL",
	aborts: true,
	note:   keytable.NotePostgres,
	ends: func(err error) (ended, others bool) {
		state := postgres.State(err)
		// 57P01 to 57P05: the server shuts down or ends the session; 08: the connection failed.
		others = postgres.Undone(err) || strings.HasPrefix(state, "08") || strings.HasPrefix(state, "57P")
		return others || state == postgres.NoTransaction, others // the handler can end it too, in SQL
	},
	noSavepoint: func(err error) bool {
		state := postgres.State(err)
		return state == "3B001" || state == postgres.NoTransaction
	},
	missing: func(err error) bool { return postgres.State(err) == "42P01" },
	raced: func(err error) bool { // unique_violation in the catalog, duplicate_table, duplicate_object
		return slices.Contains([]string{"23505", "42P07", "42710"}, postgres.State(err))
	},
	answered: func(err error) bool { return postgres.State(err) != "" },
	maxName:  63,
	// A message of the protocol, a value and a row have less than 1 GiB each.
	maxStatement: 1<<30 - 1<<20,
	refused:      func(err error) bool { return strings.HasPrefix(postgres.State(err), "22") }, // data exceptions
	// program_limit_exceeded
	large:  func(err error) bool { return postgres.State(err) == "54000" },
	inKeys: &keytable.InPostgres,
	schema: func(payloadType string, batch int) wsql.SchemaAdapter {
		return wsql.DefaultPostgreSQLSchema{
			GeneratePayloadType: func(string) string { return payloadType }, SubscribeBatchSize: batch,
		}
	},
	offsets: wsql.DefaultPostgreSQLOffsetsAdapter{},
	binary:  "BYTEA",
	source: func(s wsql.SchemaAdapter) (source, bool) {
		schema, ok := valueOf[wsql.DefaultPostgreSQLSchema](s)
		return postgresSource{schema: schema}, ok
	},
}

// valueOf knows an adapter whether it was given as a value or a pointer. Another type may embed it, and change
// anything.
func valueOf[T any](adapter any) (value T, ok bool) {
	if p, is := adapter.(*T); is && p != nil {
		return *p, true
	}
	value, ok = adapter.(T)
	return value, ok
}

type postgresSource struct {
	schema  wsql.DefaultPostgreSQLSchema
	offsets wsql.DefaultPostgreSQLOffsetsAdapter
}

func (s postgresSource) register(topic, group string) wsql.Query {
	return s.offsets.BeforeSubscribingQueries(topic, group)[0]
}

func (s postgresSource) registered(topic, group string) wsql.Query {
	return wsql.Query{Query: `SELECT count(*) FROM ` + s.offsets.MessagesOffsetsTable(topic) +
		` WHERE consumer_group = $1`, Args: []any{group}}
}

// position is doubted where its transaction is one that has not begun. What waited for the lock sees a position that is
// newer than its snapshot: it is read again, with the lock.
func (s postgresSource) position(ctx context.Context, db *sql.DB, topic, group,
	lock string) (at position, trust trust, err error) {
	at, trust, err = s.positionNow(ctx, db, topic, group, lock)
	if err == nil && trust == doubted && lock != "" {
		at, trust, err = s.positionNow(ctx, db, topic, group, "")
	}
	return at, trust, err
}

func (s postgresSource) positionNow(ctx context.Context, db *sql.DB, topic, group,
	lock string) (at position, trust trust, err error) {
	var offset sql.NullInt64
	var ahead bool
	err = db.QueryRowContext(ctx, `SELECT offset_acked, last_processed_transaction_id,
	last_processed_transaction_id >= pg_snapshot_xmax(pg_current_snapshot()) FROM `+s.offsets.MessagesOffsetsTable(topic)+
		` WHERE consumer_group = $1`+lock, group).Scan(&offset, &at.transaction, &ahead)
	if errors.Is(err, sql.ErrNoRows) {
		return at, unknown, fmt.Errorf("the row of consumer group %q is gone from %s", group,
			s.offsets.MessagesOffsetsTable(topic))
	}
	at.offset = offset.Int64
	if ahead {
		trust = doubted
	}
	return at, trust, err
}

// evidence is a transaction id, of the position or of a message, that this server has yet to give out. What is visible
// has a lower one, so that there is no false alarm.
func (s postgresSource) evidence(ctx context.Context, db *sql.DB, topic string, at position, _ trust) (string, error) {
	if at.transaction == refused {
		return "it was refused before: the tables come from another server (a dump was restored, or replicated)", nil
	}
	var next, newest int64
	err := db.QueryRowContext(ctx, `SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
	COALESCE((SELECT transaction_id FROM `+s.schema.MessagesTable(topic)+
		` ORDER BY transaction_id DESC, "offset" DESC LIMIT 1), '0')::text::bigint`).Scan(&next, &newest)
	if err != nil || max(at.transaction, newest) < next {
		return "", err
	}
	return fmt.Sprintf("it is at transaction %d, and the newest message is of transaction %d, while the server's next "+
		"transaction is %d: the tables come from another server (a dump was restored, or replicated)",
		at.transaction, newest, next), nil
}

// refused is the transaction of a position that was refused: no server gives it out. So the position stays refused
// when the server's ids have passed what it was.
const refused = math.MaxInt64

func (s postgresSource) refuse(ctx context.Context, db *sql.DB, topic, group string, at position) (done bool, err error) {
	if at.transaction == refused {
		return false, nil
	}
	_, err = db.ExecContext(ctx, `UPDATE `+s.offsets.MessagesOffsetsTable(topic)+
		` SET last_processed_transaction_id = $2::bigint::text::xid8
WHERE consumer_group = $1 AND last_processed_transaction_id = $3::bigint::text::xid8 AND COALESCE(offset_acked, 0) = $4::bigint`,
		group, int64(refused), at.transaction, at.offset)
	return err == nil, err
}

// restart gives messages with ids of the future the id of this transaction: they would be waited for. No group that
// goes on where it is can have handled them.
func (s postgresSource) restart(topic, group string) []wsql.Query {
	return []wsql.Query{
		{Query: `UPDATE ` + s.schema.MessagesTable(topic) +
			` SET transaction_id = pg_current_xact_id() WHERE transaction_id >= pg_snapshot_xmax(pg_current_snapshot())`},
		{Query: `UPDATE ` + s.offsets.MessagesOffsetsTable(topic) +
			` SET offset_acked = 0, last_processed_transaction_id = '0' WHERE consumer_group = $1`, Args: []any{group}},
	}
}

func (s postgresSource) acknowledge(topic, group string, row wsql.Row) wsql.Query {
	return s.offsets.AckMessageQuery(topic, row, group)
}

// next compares rows, which the index of the table answers at any backlog. A message is visible only when all
// transactions that began before its own have ended, so that none comes in behind.
func (s postgresSource) next(topic string, from position, n int) wsql.Query {
	return wsql.Query{Query: `SELECT "offset", transaction_id, uuid, payload, metadata FROM ` + s.schema.MessagesTable(topic) + `
WHERE (transaction_id, "offset") > ($1::bigint::text::xid8, $2::bigint) AND transaction_id < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY transaction_id, "offset" LIMIT $3::bigint`, Args: []any{from.transaction, from.offset, n}}
}

func (s postgresSource) between(string, int64, int64) wsql.Query { return wsql.Query{} }

func (s postgresSource) highest(string) wsql.Query { return wsql.Query{} }

func (s postgresSource) all(topic string) wsql.Query {
	return wsql.Query{Query: `SELECT count(*) FROM ` + s.schema.MessagesTable(topic)}
}

func (s postgresSource) behind(topic, group string) wsql.Query {
	return wsql.Query{Query: `SELECT count(*) FROM ` + s.schema.MessagesTable(topic) + ` WHERE (transaction_id, "offset") > (
	COALESCE((SELECT last_processed_transaction_id FROM ` + s.offsets.MessagesOffsetsTable(topic) + ` WHERE consumer_group = $1), '0'),
	COALESCE((SELECT offset_acked FROM ` + s.offsets.MessagesOffsetsTable(topic) + ` WHERE consumer_group = $1), 0))`, Args: []any{group}}
}
