package wmsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/keys"
	"github.com/watermill-spillway/spillway/internal/mysql"
)

var mysqlDialect = dialect{
	name: "MySQL",
	// Watermill's SERIALIZABLE locks the rows it reads and the gaps between them, in the way of publishers.
	isolation: sql.LevelReadCommitted,
	endless:   true,
	gaps:      true,
	ends: func(err error) (ended, others bool) {
		// A deadlock rolls everything back, and a lock wait that took too long may (innodb_rollback_on_timeout): what is said
		// after that would commit by itself.
		if mysql.Undone(err) {
			return true, true
		}
		switch mysql.Number(err) {
		case 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 3169, 4031: // shutdown, killed, aborted connections
			return true, true
		}
		return false, false
	},
	noSavepoint: func(err error) bool { return mysql.Number(err) == mysql.NoSavepoint },
	missing:     func(err error) bool { return mysql.Number(err) == 1146 },
	raced:       func(error) bool { return false },
	answered:    func(err error) bool { return mysql.Number(err) != 0 },
	maxName:     64,
	ensureKeys: func(ctx context.Context, db *sql.DB) error {
		return mysql.Upgrade(ctx, db, keys.MySQL)
	},
	inKeys: &keys.InMySQL,
	keys:   func(db *sql.DB) idempotency.Store { return idempotency.MySQL(db) },
	schema: func(payloadType string, batch int) wsql.SchemaAdapter {
		return wsql.DefaultMySQLSchema{
			GeneratePayloadType: func(string) string { return payloadType }, SubscribeBatchSize: batch,
		}
	},
	offsets: wsql.DefaultMySQLOffsetsAdapter{},
	binary:  "LONGBLOB",
	source: func(s wsql.SchemaAdapter, o wsql.OffsetsAdapter) (source, bool) {
		schema, ok := valueOf[wsql.DefaultMySQLSchema](s)
		offsets, also := valueOf[wsql.DefaultMySQLOffsetsAdapter](o)
		return mysqlSource{schema, offsets}, ok && also
	},
}

type mysqlSource struct {
	schema  wsql.DefaultMySQLSchema
	offsets wsql.DefaultMySQLOffsetsAdapter
}

func (s mysqlSource) register(topic, group string) wsql.Query {
	return wsql.Query{
		Query: `INSERT IGNORE INTO ` + s.offsets.MessagesOffsetsTable(topic) + ` (consumer_group, offset_acked, offset_consumed) VALUES (?, 0, 0)`,
		Args:  []any{group},
	}
}

func (s mysqlSource) registered(topic, group string) wsql.Query {
	return wsql.Query{Query: `SELECT COUNT(*) FROM ` + s.offsets.MessagesOffsetsTable(topic) + ` WHERE consumer_group = ?`, Args: []any{group}}
}

func (s mysqlSource) position(ctx context.Context, db *sql.DB, topic, group, lock string) (at position, err error) {
	var offset sql.NullInt64
	err = db.QueryRowContext(ctx, `SELECT offset_acked FROM `+s.offsets.MessagesOffsetsTable(topic)+` WHERE consumer_group = ?`+lock, group).Scan(&offset)
	if errors.Is(err, sql.ErrNoRows) {
		return at, fmt.Errorf("the row of consumer group %q is gone from %s", group, s.offsets.MessagesOffsetsTable(topic))
	}
	at.offset = offset.Int64
	return at, err
}

func (s mysqlSource) next(topic string, from position, n int) wsql.Query {
	return wsql.Query{
		Query: "SELECT `offset`, uuid, payload, metadata FROM " + s.schema.MessagesTable(topic) + " WHERE `offset` > ? ORDER BY `offset` LIMIT ?",
		Args:  []any{from.offset, n},
	}
}

func (s mysqlSource) between(topic string, first, behind int64) wsql.Query {
	return wsql.Query{
		Query: "SELECT `offset` FROM " + s.schema.MessagesTable(topic) + " WHERE `offset` >= ? AND `offset` < ? LIMIT 1 FOR UPDATE NOWAIT",
		Args:  []any{first, behind},
	}
}

func (s mysqlSource) all(topic string) wsql.Query {
	return wsql.Query{Query: `SELECT count(*) FROM ` + s.schema.MessagesTable(topic)}
}

func (s mysqlSource) behind(topic, group string) wsql.Query {
	return wsql.Query{
		Query: "SELECT count(*) FROM " + s.schema.MessagesTable(topic) + " WHERE `offset` > COALESCE((SELECT offset_acked FROM " +
			s.offsets.MessagesOffsetsTable(topic) + " WHERE consumer_group = ?), 0)",
		Args: []any{group},
	}
}
