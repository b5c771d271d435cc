package wmsql_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
)

// embedded is a schema of a user's own in the way watermill-sql recommends: it embeds the default, and changes something.
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

// logged is a logger that keeps its lines.
type logged struct {
	watermill.NopLogger
	mu    sync.Mutex
	lines []string
}

func (l *logged) add(level, msg string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf("%s %s %v", level, msg, err))
}

func (l *logged) Error(msg string, err error, _ watermill.LogFields) { l.add("error", msg, err) }
func (l *logged) Info(msg string, _ watermill.LogFields)             { l.add("info", msg, nil) }
func (l *logged) With(watermill.LogFields) watermill.LoggerAdapter   { return l }

// get returns the lines of a level that contain a text.
func (l *logged) get(level, text string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.lines), func(line string) bool {
		return !strings.HasPrefix(line, level) || !strings.Contains(line, text)
	})
}
