// Package pgxstore is the store of idempotency keys in PostgreSQL for programs that use pgx: the one of
// idempotency.NewStore, with keys that cost no round trip.
//
//	db, err := sql.Open("pgx", address) // github.com/jackc/pgx/v5/stdlib
//	store, err := pgxstore.New(ctx, db, "shop")
//	dlc, err := spillway.New(ctx, spillway.Config{Publisher: dead, Idempotency: store})
//
// With the store of idempotency.NewStore a message costs a round trip for its key. With this one the key travels with
// the handler's first statement, and costs none. Measured beside handlers with a transaction of their own and no keys:
// 1.07 of their messages a second with 1 consumer and 0.96 with 8, where idempotency.NewStore has 0.89 and 0.77. Use
// this store if round trips to the database dominate the time of a message, and if every handler tolerates what is
// listed below. Nothing else is different: the table, the states of a key, what commits with what, leases. One process
// may use one store, and the next process the other. The package is separate because it imports pgx.
//
// # How the key travels
//
// A statement can carry the key if it has arguments and returns no rows. That is Exec or ExecContext of Tx with an
// INSERT, UPDATE, DELETE, MERGE or WITH. Before any other statement the key goes by itself, and so it does after a
// handler that sent none. The server enters the key first. If the key exists, the statement's work is rolled back at
// once and the statement returns idempotency.ErrApplied, as all that follow do. When the handler has returned, in
// success or failure, the message is absorbed. So what is written through Tx takes effect once. What is different:
//
//   - The handler of a duplicate begins, and goes as far as its first statement. What it does until then, and outside
//     of Tx if it goes on in spite of the error, it does once for each delivery. The same holds for what a rollback
//     does not take back, such as the values of a sequence. A handler that calls another service first should not use
//     this store.
//   - Middlewares between the receiver and the handler see ErrApplied as an error: a Retry there would retry it. A
//     handler that panics or nacks instead of returning gets the message again.
//   - A handler waits in its first statement for another delivery of its message. The wait ends with that statement's
//     context, or a second after the message's context.
//   - Tracers of pgx see the statement in a batch.
//   - If the statement fails, the transaction is begun anew and the statement sent again, alone, so that its error is
//     its own.
package pgxstore
