// Package idempotency is the idempotent receiver: it applies each message once, however often it is delivered.
//
//	receiver, err := idempotency.NewReceiver(idempotency.ReceiverConfig{Store: idempotency.SQLite(db)})
//	router.AddMiddleware(receiver.Middleware)
//
//	func handle(msg *message.Message) ([]*message.Message, error) {
//		tx := idempotency.Tx(msg.Context())
//		_, err := tx.ExecContext(msg.Context(), `UPDATE account SET balance = balance + ? WHERE id = ?`, amount, id)
//		return []*message.Message{booked}, err
//	}
//
// # How it works
//
// Around every call of the handler the receiver holds a transaction, whose first statement enters the message's key.
// What the handler writes through Tx, the key and the messages that the handler returned commit together or not at all.
// A duplicate that arrives later finds the key: its handler is not called, and it returns the recorded messages with the
// ids they had before. A duplicate that arrives meanwhile waits until the first has ended, and then finds the key or
// becomes the first itself.
//
// # What is promised
//
//   - What the handler writes through Tx takes effect once per key: across redelivery, crash, retries and redrive.
//   - An attempt that fails, panics or ends in runtime.Goexit leaves nothing behind, neither writes nor key. So a
//     message that was set aside as a dead letter can be applied when it comes back, and one that succeeded is absorbed.
//   - Messages that the handler returns are returned at least once, and always with the same ids: a publish that failed
//     after the commit is made up for by the next delivery. Ids are derived from consumer, key and index.
//
// # What is not promised
//
//   - Effects outside the transaction (an HTTP call, a mail, a write through the *sql.DB itself) happen at least once.
//   - Order: a message that failed is applied when it comes back, after those that came behind it.
//   - That a handler which commits or rolls back the transaction itself did one thing or the other: it gets a permanent
//     error that says so. What it committed stays, with the key.
//
// # The states of a key
//
//	absent ──Claim──▶ claimed ──Commit──▶ applied (for good, with the recorded messages)
//	   ▲                 │
//	   └──Release, crash─┘
//
// "Claimed" is an open transaction and nothing else, so no expiry and no sweeper is needed: where the process or its
// connection ends, the database rolls back. "Applied" is a row of the table spillway_keys.
//
// # SQLite
//
// SQLite has one write lock per file, and the receiver holds it from the key to the commit. Handlers of one *sql.DB
// therefore run one after another, each waiting in a row for its turn. Keep them short, let them write through Tx alone
// (a write through the *sql.DB would wait for the handler's own lock), and prefer a database in WAL mode, where reading
// goes on beside the writer.
//
// # PostgreSQL
//
//	receiver, err := idempotency.NewReceiver(idempotency.ReceiverConfig{Store: idempotency.Postgres(db)})
//
// PostgreSQL locks the key alone: handlers of different keys run at the same time, each on a connection of its own, and a
// duplicate waits on one of its own too. The transaction is READ COMMITTED. After a statement that failed PostgreSQL
// refuses all others and commits nothing, so a handler that means to go on sets a SAVEPOINT before it; one that just goes
// on gets an error. Rows must be closed before the handler returns: the connection is busy with them. A commit whose
// answer is lost with the connection is an error, and the next delivery finds out what became of it.
//
// # MySQL and MariaDB
//
//	receiver, err := idempotency.NewReceiver(idempotency.ReceiverConfig{Store: idempotency.MySQL(db)})
//
// All that is said of PostgreSQL's connections, isolation and open rows holds here too. A statement that failed does not
// end the transaction, unless it failed with a deadlock: that rolls everything back, the key included. A handler that goes
// on after it gets a permanent error, and what it writes is rolled back as well: while a claim holds the connection,
// autocommit is off. Statements that commit before they run, such as CREATE TABLE, end the transaction as a COMMIT by the
// handler does. Tables that the handler writes must be InnoDB's: no other engine takes anything back.
package idempotency
