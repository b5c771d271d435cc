// Package pipelined is what a store may know of a driver beyond database/sql: that it sends several statements at once,
// each with arguments, and waits once for all their answers.
package pipelined

import (
	"context"
	"database/sql/driver"
)

// Statement is a statement on its way.
type Statement struct {
	Text string
	Args []any
}

// Sender sends statements over a driver's connection in one round trip, and returns how many rows each changed. Those
// behind one that fails do not run: then it returns the numbers of those before it, and the error. With driver.ErrSkip
// nothing was sent: the connection is another driver's, or its settings or the arguments are nothing for a pipeline.
type Sender func(ctx context.Context, conn driver.Conn, statements ...Statement) (changed []int64, err error)

// Store is a store of keys whose statements can go through a Sender. T is idempotency.Store, of which this package
// knows nothing.
type Store[T any] interface {
	// Pipelined returns the store with send, or false if its database is not PostgreSQL.
	Pipelined(send Sender) (store T, ok bool)
}
