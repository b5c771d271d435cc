package wmsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/crc32"
	"regexp"
	"strconv"
	"strings"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"

	"github.com/watermill-spillway/spillway/internal/sqlstore/database"
	"github.com/watermill-spillway/spillway/internal/sqlstore/database/mysql"
	"github.com/watermill-spillway/spillway/internal/sqlstore/keytable"
)

var mysqlDialect = dialect{
	kind:    database.MySQL,
	name:    "MySQL",
	endless: true,
	gaps:    true,
	ends: func(err error) (ended, others bool) {
		// A deadlock rolls everything back, and a lock wait that took too long may (innodb_rollback_on_timeout): what
		// is said after that would commit by itself.
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
	refused: func(err error) bool {
		switch mysql.Number(err) {
		case 1366, 1406, 3140, 3988, 4025: // character set, length, JSON, conversion, a CHECK such as MariaDB's of JSON
			return true
		}
		return false
	},
	large: func(err error) bool {
		switch mysql.Number(err) {
		case mysql.PacketTooLarge, mysql.RowTooLarge, 1301, 1406: // cut by max_allowed_packet, too long for its column
			return true
		}
		return err != nil && strings.Contains(err.Error(), "packet for query is too large") // the driver's own limit
	},
	inKeys: &keytable.InMySQL,
	schema: func(payloadType string, batch int) wsql.SchemaAdapter {
		return wsql.DefaultMySQLSchema{
			GeneratePayloadType: func(string) string { return payloadType }, SubscribeBatchSize: batch,
		}
	},
	offsets: wsql.DefaultMySQLOffsetsAdapter{},
	binary:  "LONGBLOB",
	source: func(s wsql.SchemaAdapter) (source, bool) {
		schema, ok := valueOf[wsql.DefaultMySQLSchema](s)
		return mysqlSource{schema: schema}, ok
	},
}

type mysqlSource struct {
	schema  wsql.DefaultMySQLSchema
	offsets wsql.DefaultMySQLOffsetsAdapter
}

func (s mysqlSource) refuse(context.Context, *sql.DB, string, string, position) (bool, error) {
	return false, nil
}

func (s mysqlSource) register(topic, group string) wsql.Query {
	return wsql.Query{
		Query: `INSERT IGNORE INTO ` + s.offsets.MessagesOffsetsTable(topic) +
			` (consumer_group, offset_acked, offset_consumed) VALUES (?, 0, 0)`,
		Args: []any{group},
	}
}

func (s mysqlSource) registered(topic, group string) wsql.Query {
	return wsql.Query{Query: `SELECT COUNT(*) FROM ` + s.offsets.MessagesOffsetsTable(topic) +
		` WHERE consumer_group = ?`,
		Args: []any{group}}
}

// position is sure where the row that was acknowledged is there, and doubted where another row has its number.
func (s mysqlSource) position(ctx context.Context, db *sql.DB, topic, group,
	lock string) (at position, trust trust, err error) {
	var offset sql.NullInt64
	var consumed int64
	var id []byte
	err = db.QueryRowContext(ctx,
		"SELECT p.offset_acked, p.offset_consumed, (SELECT m.uuid FROM "+s.schema.MessagesTable(topic)+
			" m WHERE m.`offset` = p.offset_acked) FROM "+s.offsets.MessagesOffsetsTable(topic)+" p WHERE p.consumer_group = ?"+
			lock, group).
		Scan(&offset, &consumed, &id)
	if errors.Is(err, sql.ErrNoRows) {
		return at, unknown, fmt.Errorf("the row of consumer group %q is gone from %s", group,
			s.offsets.MessagesOffsetsTable(topic))
	}
	at.offset = offset.Int64
	return at, recognize(at.offset, consumed, id), err
}

// evidence is another row under the number of the position, or a number that the table has yet to give out. SHOW CREATE
// TABLE tells the number as it is; information_schema of MySQL 8 tells what it was up to a day ago.
func (s mysqlSource) evidence(ctx context.Context, db *sql.DB, topic string, at position,
	trust trust) (string, error) {
	if trust == doubted {
		return fmt.Sprintf("the message at position %d is not the one that was acknowledged there: the table was emptied "+
			"(TRUNCATE), or made anew", at.offset), nil
	}
	if at.offset == 0 {
		return "", nil
	}
	var table, create string
	if err := db.QueryRowContext(ctx, `SHOW CREATE TABLE `+s.schema.MessagesTable(topic)).Scan(&table,
		&create); err != nil {
		return "", err
	}
	options := tableOptions.FindStringSubmatch(create)
	if options == nil { // sql_mode hides them (NO_TABLE_OPTIONS)
		return "", nil
	}
	next := int64(1) // where the option is not shown
	if found := nextNumber.FindStringSubmatch(options[1]); found != nil {
		n, err := strconv.ParseInt(found[1], 10, 64)
		if err != nil {
			return "", nil // a BIGINT can give out no number that is higher
		}
		next = n
	}
	if at.offset < next {
		return "", nil
	}
	return fmt.Sprintf("it is at %d, and the next message of the table gets the number %d: the table was emptied "+
		"(TRUNCATE), or made anew", at.offset, next), nil
}

// tableOptions are behind the columns, and nextNumber is one of them.
var (
	tableOptions = regexp.MustCompile(`\n\) (ENGINE=[^'\n]*)`)
	nextNumber   = regexp.MustCompile(`\bAUTO_INCREMENT=(\d+)`)
)

func (s mysqlSource) restart(topic, group string) []wsql.Query {
	return []wsql.Query{{
		Query: `UPDATE ` + s.offsets.MessagesOffsetsTable(topic) +
			` SET offset_acked = 0, offset_consumed = 0 WHERE consumer_group = ?`,
		Args: []any{group},
	}}
}

// acknowledge writes into offset_consumed, which watermill-sql does not query, what recognises the row.
func (s mysqlSource) acknowledge(topic, group string, row wsql.Row) wsql.Query {
	query := s.offsets.AckMessageQuery(topic, row, group)
	query.Args[0] = fingerprint(row.Offset, row.UUID)
	return query
}

// fingerprint is a negative number, which watermill-sql's subscriber never writes, of a row's number and id.
func fingerprint(offset int64, id []byte) int64 {
	ascii := make([]byte, 0, maxID) // what else there is may read differently on connections with another character set
	for _, c := range id {
		if c < 0x80 && c != '?' {
			ascii = append(ascii, c)
		}
	}
	return -1 - (offset&(1<<30-1)<<32 | int64(crc32.ChecksumIEEE(ascii)))
}

// recognize compares the row at an acknowledged number with the fingerprint. One that belongs to another number was
// left there if the position was moved by hand.
func recognize(offset, consumed int64, id []byte) trust {
	switch {
	case id == nil || consumed >= 0 || (-1-consumed)>>32 != offset&(1<<30-1):
		return unknown
	case consumed != fingerprint(offset, id):
		return doubted
	}
	return sure
}

func (s mysqlSource) next(topic string, from position, n int) wsql.Query {
	return wsql.Query{
		Query: "SELECT `offset`, uuid, payload, metadata FROM " + s.schema.MessagesTable(topic) +
			" WHERE `offset` > ? " +
			"ORDER BY `offset` LIMIT ?",
		Args: []any{from.offset, n},
	}
}

func (s mysqlSource) between(topic string, first, behind int64) wsql.Query {
	return wsql.Query{
		Query: "SELECT `offset` FROM " + s.schema.MessagesTable(topic) +
			" WHERE `offset` >= ? AND `offset` < ? LIMIT 1 " +
			"FOR UPDATE NOWAIT",
		Args: []any{first, behind},
	}
}

func (s mysqlSource) highest(topic string) wsql.Query {
	return wsql.Query{Query: "SELECT MAX(`offset`) FROM " + s.schema.MessagesTable(topic)}
}

func (s mysqlSource) all(topic string) wsql.Query {
	return wsql.Query{Query: `SELECT count(*) FROM ` + s.schema.MessagesTable(topic)}
}

func (s mysqlSource) behind(topic, group string) wsql.Query {
	return wsql.Query{
		Query: "SELECT count(*) FROM " + s.schema.MessagesTable(topic) +
			" WHERE `offset` > COALESCE((SELECT offset_acked FROM " +
			s.offsets.MessagesOffsetsTable(topic) + " WHERE consumer_group = ?), 0)",
		Args: []any{group},
	}
}
