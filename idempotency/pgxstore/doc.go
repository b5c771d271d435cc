// Package pgxstore is the store of idempotency keys in PostgreSQL for programs that use pgx: the one of idempotency.Postgres,
// and quicker.
//
//	db, err := sql.Open("pgx", address) // github.com/jackc/pgx/v5/stdlib
//	dlc, err := spillway.New(spillway.Config{Publisher: dead, Idempotency: pgxstore.Postgres(db)})
//
// # What it does
//
// database/sql sends one statement with arguments and waits for its answer. pgx can send several, and wait once. So BEGIN and
// the key go together as prepared statements with arguments, which the server need not parse; idempotency.Postgres sends
// them together too, but as text. Nothing else is different: the table, the states of a key, what commits with what. One
// process may use the one store, and the next the other.
//
// It is a package of its own because it imports pgx, and who does not use pgx should not compile it.
//
// # Optimistic
//
// With ReceiverConfig.Optimistic the key goes together with the handler's first statement, and costs no round trip at all:
//
//	Idempotency: pgxstore.Postgres(db),
//	Receiver:    idempotency.ReceiverConfig{Optimistic: true},
//
// What can take the key along is a statement that has arguments and returns no rows: Tx's Exec or ExecContext of an INSERT,
// UPDATE, DELETE, MERGE or WITH. Before any other the key goes by itself, as it does after a handler that said nothing. The
// server enters the key first. Where the key is there already, what the statement did is rolled back at once, it returns
// idempotency.ErrApplied, and so do all that follow; when the handler has returned, in success or failure, the message is
// absorbed. So what is written through Tx takes effect once, as ever. What is different:
//
//   - The handler of a duplicate begins, and goes as far as its first statement. What it does until then, and what it does
//     outside of Tx if it goes on in spite of the error, it does once for each delivery. So it is with what a rollback does
//     not take back of the first statement itself, such as the values of a sequence. Handlers that call another service
//     first, and count on duplicates not to, are better off without.
//   - Middlewares between the receiver and the handler see ErrApplied, as an error: a Retry there would retry it. One that
//     is returned absorbs the message; a handler that panics or nacks it instead has it come again.
//   - A handler waits in its first statement for another delivery of its message to end, until that statement's context
//     ends, or a second after the message's.
//   - Tracers of pgx see that statement in a batch.
//   - When the statement fails, the transaction is begun anew and the statement sent again, alone, so that its error is its
//     own.
package pgxstore
