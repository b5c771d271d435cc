package wmsql_test

import (
	"strings"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
)

// embedded is a schema of a user's own in the way watermill-sql recommends: it embeds the default, and changes
// something.
func (b *bench) embedded() wsql.SchemaAdapter {
	b.Helper()
	if b.isPostgres() {
		return postgresEmbedded{b.stockSchema().(wsql.DefaultPostgreSQLSchema)}
	}
	return mysqlEmbedded{b.stockSchema().(wsql.DefaultMySQLSchema)}
}

type postgresEmbedded struct{ wsql.DefaultPostgreSQLSchema }

func (s postgresEmbedded) SelectQuery(topic, group string, offsets wsql.OffsetsAdapter) wsql.Query {
	return skipping(s.DefaultPostgreSQLSchema.SelectQuery(topic, group, offsets))
}

type mysqlEmbedded struct{ wsql.DefaultMySQLSchema }

func (s mysqlEmbedded) SelectQuery(topic, group string, offsets wsql.OffsetsAdapter) wsql.Query {
	return skipping(s.DefaultMySQLSchema.SelectQuery(topic, group, offsets))
}

// skipping leaves out messages whose id is skip.
func skipping(query wsql.Query) wsql.Query {
	query.Query = strings.Replace(query.Query, "WHERE `offset` >", "WHERE uuid <> 'skip' AND `offset` >", 1)
	query.Query = strings.Replace(query.Query, "transaction_id < pg_snapshot_xmin", "uuid <> 'skip' AND transaction_id < pg_snapshot_xmin", 1)
	return query
}
