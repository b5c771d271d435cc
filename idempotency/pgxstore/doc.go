// Package pgxstore is the store of idempotency keys in PostgreSQL for programs that use pgx: the one of
// idempotency.NewStore, with claims made through pgx, and a pgx.Tx for the handler.
//
//	pool, err := pgxpool.New(ctx, address)
//	db := stdlib.OpenDBFromPool(pool)
//	store, err := pgxstore.New(ctx, db, "shop")
//	dlc, err := spillway.New(ctx, spillway.Config{Publisher: dead, Idempotency: store})
//
//	func handle(msg *message.Message) ([]*message.Message, error) {
//		_, err := pgxstore.Tx(msg.Context()).Exec(msg.Context(), `UPDATE account ...`)
//		return nil, err
//	}
//
// BEGIN, a savepoint and the key go in one batch, and so do the savepoint's release and COMMIT. So a message costs the
// round trips of a transaction of the handler's own. The release proves that the transaction is the one that entered
// the key: PostgreSQL refuses it after a COMMIT or ROLLBACK of the handler's in SQL.
//
// Nothing else is different: the table, the states of a key, what commits with what, leases. One process may use this
// store, and the next process idempotency.NewStore. A handler that calls idempotency.Tx gets a *sql.Tx of the same
// transaction, which costs two round trips: give all handlers that are often called the pgx.Tx.
//
// The package is separate because it imports pgx.
package pgxstore
