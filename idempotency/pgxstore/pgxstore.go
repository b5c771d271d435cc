package pgxstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/watermill-spillway/spillway/idempotency"
	"github.com/watermill-spillway/spillway/internal/sqlstore/pipelined"
)

// New returns the store that idempotency.NewStore returns, except that a key goes with the handler's first statement,
// through pgx's pipeline. Open db with github.com/jackc/pgx/v5/stdlib. The pipeline is used if a connection's
// default_query_exec_mode is cache_statement, the default, or cache_describe; on other connections, and on those of
// other drivers, the key goes by itself before the first statement. A database other than PostgreSQL is an error. The
// store does not close db.
func New(ctx context.Context, db *sql.DB, service string) (idempotency.Store, error) {
	store, err := idempotency.NewStore(ctx, db, service)
	if err != nil {
		return nil, err
	}
	if own, ok := store.(pipelined.Store[idempotency.Store]); ok {
		if pipelining, ok := own.Pipelined(send); ok {
			return pipelining, nil
		}
	}
	return nil, errors.New("pgxstore: New: the database is not PostgreSQL: use idempotency.NewStore")
}

// send is a pipelined.Sender.
func send(ctx context.Context, conn driver.Conn, statements ...pipelined.Statement) (changed []int64, err error) {
	own, ok := conn.(*stdlib.Conn)
	if !ok {
		return nil, driver.ErrSkip
	}
	c := own.Conn()
	if c.IsClosed() {
		return nil, driver.ErrBadConn
	}
	if !pipelines(c) {
		return nil, driver.ErrSkip
	}
	var batch pgx.Batch
	for _, s := range statements {
		if isOption(s.Args) {
			return nil, driver.ErrSkip
		}
		batch.Queue(s.Text, s.Args...)
	}
	return exec(c.SendBatch(ctx, &batch), len(statements))
}

func exec(results pgx.BatchResults, statements int) (changed []int64, err error) {
	changed = make([]int64, 0, statements)
	for range statements {
		var tag pgconn.CommandTag
		if tag, err = results.Exec(); err != nil {
			break
		}
		changed = append(changed, tag.RowsAffected())
	}
	if closed := results.Close(); err == nil {
		err = closed
	}
	if pgconn.SafeToRetry(err) { // it was not sent: what pgx's own driver says then
		err = driver.ErrBadConn
	}
	return changed, err
}

// modeKnown is where a connection keeps whether it pipelines: to ask for its settings copies them.
const modeKnown = "github.com/watermill-spillway/spillway/idempotency/pgxstore"

// pipelines reports whether statements mean the same in a batch: in other modes arguments are sent in other forms.
func pipelines(c *pgx.Conn) bool {
	data := c.PgConn().CustomData()
	known, ok := data[modeKnown].(bool)
	if !ok {
		mode := c.Config().DefaultQueryExecMode
		known = mode == pgx.QueryExecModeCacheStatement || mode == pgx.QueryExecModeCacheDescribe
		data[modeKnown] = known
	}
	return known
}

// isOption reports whether the first argument is for pgx and not for the server. Batches know some such options and not
// others.
func isOption(args []any) bool {
	if len(args) == 0 {
		return false
	}
	switch args[0].(type) {
	case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID, pgx.QueryRewriter:
		return true
	}
	return false
}
