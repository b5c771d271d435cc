// Package idempotency is the idempotent receiver: it applies each message once, however often it is delivered.
//
//	receiver, err := idempotency.NewReceiver(idempotency.SQLite(db), idempotency.ReceiverConfig{})
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
// Around every call of the handler the receiver holds a transaction, whose first statement enters the message's key (see
// ReceiverConfig.Optimistic for one that is carried by the handler's own).
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
//     after the commit is made up for by the next delivery. A message keeps the id that the handler set, also one that is
//     new in each attempt: nothing is published before the commit, and the ids are recorded with it. A message without an
//     id, or with that of an earlier output, gets one that is derived from consumer, key and index.
//   - An outage of the store sets nothing aside. Messages are held until the store answers, or given back after
//     ReceiverConfig.MaxHold, and nothing is counted. So it is where the connection is lost under a handler or its commit, but at
//     most ten times in a row for one message, which may be what ends the connection.
//
// # What is not promised
//
//   - Effects outside the transaction (an HTTP call, a mail, a write through the *sql.DB itself) happen at least once. For
//     those there are leases.
//   - Order: a message that failed is applied when it comes back, after those that came behind it.
//   - The outputs of a version that was overtaken: with ReceiverConfig.Version, what could not be published for a version
//     before a higher one was applied is not made up for.
//   - Duplicates beyond the retention: a key that was purged is forgotten, and its message applied again if it comes again.
//
// # Leases
//
// For handlers whose effects are outside of SQL set ReceiverConfig.Lease. The key is then leased, by the database's clock, in
// a short transaction before the handler runs; renewed after each third of the lease while it runs; and recorded as applied,
// with the outputs, when it has succeeded. No transaction is open meanwhile, and Tx returns nil. A duplicate that comes while
// the first is at work is given back after PutBackAfter, not acked and not counted. A handler that fails gives its lease up.
//
// Effects happen at least once: once as long as the process neither dies nor loses its lease between the effect and the
// record, and the handler does not fail after it. The handler's context is cancelled with the cause ErrLeaseLost before the
// lease is over, unless the database's clock jumps, and carries a fencing token (Fence) that rises with every lease of the key
// until it is purged, so that the other side can refuse a late writer. A process that is suspended for longer than its lease
// wakes up without it, after a jump of the clock its owner learns at the next renewal, and a handler that ignores its context
// goes on: only the token, or an idempotency key on the other side, helps against those. Where a success cannot be
// recorded because the database is away, the message is given back, and its effects happen again if the record never came
// about; where the database refuses the record, it is a permanent error.
//
// # Keys, versions, payloads
//
// A key is the message's id, or what ReceiverConfig.Key says. With ReceiverConfig.Version it is a business key: the message
// with the highest version wins, and stale ones are skipped. The payload's SHA-256 is kept with the key, so that a key used
// for two messages is reported (invalid, with reason key_reused) instead of absorbing the second.
//
// # The states of a key
//
//	absent, given up ──Claim──▶ claimed ──Commit──▶ applied (with the recorded messages; until Purge)
//	   ▲                           │
//	   └──────Release, crash───────┘
//
//	absent, given up, expired ──Lease──▶ leased ──Complete──▶ applied
//	          ▲                            │
//	          └──Release, crash + expiry───┘
//
// "Claimed" is an open transaction and nothing else, so no expiry and no sweeper is needed: where the process or its
// connection ends, the database rolls back. A host that vanishes without a word, with its network, the database takes for
// one that is busy, and duplicates wait, until TCP keepalives or a time-out say otherwise. The defaults are hours: set
// tcp_keepalives_idle (60, say) and idle_in_transaction_session_timeout in PostgreSQL, wait_timeout in MySQL, both longer
// than handlers pause between statements: they end those too. "Applied" and "leased" are rows of the table spillway_keys.
// docs/key-states.md has every transition with its SQL. The table is made by Initialize, or from the files of Schema
// by a migration tool of your own. Purge deletes what is older than its retention.
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
//	receiver, err := idempotency.NewReceiver(idempotency.Postgres(db), idempotency.ReceiverConfig{})
//
// PostgreSQL locks the key alone: handlers of different keys run at the same time, each on a connection of its own, and a
// duplicate waits on one of its own too. The transaction is READ COMMITTED. After a statement that failed PostgreSQL
// refuses all others and commits nothing, so a handler that means to go on sets a SAVEPOINT before it; one that just goes
// on gets an error. Rows must be closed before the handler returns: the connection is busy with them. A commit whose
// answer is lost with the connection is an error, and the next delivery finds out what became of it.
//
// A claim costs no round trip of its own: the key travels with BEGIN, and with COMMIT, where a statement of the handler's
// failed or may have ended the transaction, the proof that it is still the one which entered the key. With package pgxstore
// the claim is quicker, and with ReceiverConfig.Optimistic the key travels with the handler's first statement. Tx is a
// *sql.Tx on that connection whose Commit and Rollback send nothing: a handler that calls one and returns nil gets a
// permanent error, one that returns an error keeps that, and nothing of what it wrote is kept. A COMMIT in SQL does commit,
// with the key, and is an error too. A process that receives duplicates writes a line a minute at the most into the server's
// log: "duplicate key value violates unique constraint". The first claim of a connection prepares a statement named
// spillway_ and a hash; a pooler between must keep a session's statements, or the claim prepares it anew each time.
//
// # MySQL and MariaDB
//
//	receiver, err := idempotency.NewReceiver(idempotency.MySQL(db), idempotency.ReceiverConfig{})
//
// All that is said of PostgreSQL's connections, isolation, open rows and Tx holds here too. A statement that failed does not
// end the transaction, unless it failed with a deadlock: that rolls everything back, the key included. What a handler that
// goes on after it says is refused, and it gets a permanent error. Statements that commit before they run, such as CREATE
// TABLE, end the transaction as a COMMIT by the handler does; before one that may, two more are sent to find out. Tables that
// the handler writes must be InnoDB's: no other engine takes anything back.
package idempotency
