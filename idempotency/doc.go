// Package idempotency is the idempotent receiver: it applies each message once, however often the broker delivers it.
//
//	store, err := idempotency.NewStore(ctx, db, "shop")
//	receiver, err := idempotency.NewReceiver(store, idempotency.ReceiverConfig{})
//	router.AddMiddleware(receiver.Middleware)
//
//	func handle(msg *message.Message) ([]*message.Message, error) {
//		tx := idempotency.Tx(msg.Context())
//		_, err := tx.ExecContext(msg.Context(), `UPDATE account SET balance = balance - 30 WHERE id = $1`, id)
//		return []*message.Message{booked}, err
//	}
//
// # How it works
//
// The receiver opens a transaction before it calls the handler. The first statement enters the key of the message into
// the table spillway_keys. The handler writes through Tx, in the same transaction. The key, these writes and the
// messages that the handler returned commit together, or not at all.
//
//   - A duplicate that arrives later finds the key. Its handler is not called. The receiver returns the recorded
//     messages, with the same ids as the first time.
//   - A duplicate that arrives meanwhile waits for the first transaction. If that commits, the duplicate finds the key.
//     If it rolls back, the duplicate is handled.
//
// # What is promised
//
//   - What the handler writes through Tx takes effect once per key: across redelivery, crash, retries and redrive.
//   - An attempt that fails, panics or ends in runtime.Goexit leaves neither writes nor key. So a dead letter is
//     applied when it is redriven, and a message that succeeded is absorbed.
//   - Messages that the handler returns are returned at least once, always with the same ids. If a publish fails after
//     the commit, the next delivery publishes again. An output keeps the id that the handler set. An output without an
//     id, or with the id of an earlier output, gets an id derived from consumer, key and index.
//   - An outage of the store dead-letters nothing. Messages are held until the store answers, or requeued, uncounted,
//     before their broker redelivers them (20 s, if nothing is known of the broker). The same holds if the connection
//     is lost during a handler or its commit, at most ten times in a row for one message: the message itself may end
//     the connection.
//
// # What is not promised
//
//   - Effects outside the transaction (an HTTP call, a mail, a write through the *sql.DB) happen at least once. Use
//     leases for them.
//   - Order: a message that failed is applied when it comes back, after the messages behind it.
//   - The outputs of an overtaken version: with ReceiverConfig.Version, outputs that were not published before a higher
//     version was applied are not published again.
//   - Duplicates beyond the retention: a message whose key was purged is applied again.
//
// # Who applies a message
//
// The identity of a handler's keys is "service/handler", such as "shop/billing". Each identity applies each message for
// itself. NewStore and ReceiverConfig.Consumer say what follows from a rename, and how to rename without
// applying messages again.
//
// # Keys, versions, payloads
//
// A key is the message's id, or what ReceiverConfig.Key returns. With ReceiverConfig.Version it is a business key: the
// message with the highest version is applied, and lower ones are skipped. ReceiverConfig.Handlers gives single
// handlers a key and a version of their own. The SHA-256 of the payload is kept with the key. A second message with the
// same key and another payload is invalid, with reason key_reused. It is not absorbed.
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
// A claimed key is an open transaction and nothing else: if the process or its connection ends, the database rolls
// back. No expiry and no sweeper is needed. If a host vanishes with its network, the database notices only by TCP
// keepalives or a time-out, and duplicates wait until then. The defaults are hours. Set tcp_keepalives_idle (60, for
// example) and idle_in_transaction_session_timeout in PostgreSQL, wait_timeout in MySQL. Both end handlers too that
// pause for longer between two statements. Leased and applied keys are rows. docs/key-states.md has every
// state. NewStore creates the table; spillway.Schema has its SQL for a migration tool. Purge deletes old keys.
//
// # Leases
//
// For a handler whose effects are outside of SQL, set ReceiverConfig.Lease. There is no transaction then, and Tx
// returns nil. The receiver leases the key by the database's clock before the handler runs. It renews the lease after
// each third of its time, and records the key as applied, with the outputs, after the handler has succeeded. A
// duplicate that arrives meanwhile is requeued within a second, uncounted. A handler that fails gives the lease up.
//
// Effects then happen at least once. They happen once if three conditions hold:
//
//   - the process neither dies nor loses its lease between the effect and the record;
//   - the handler does not fail after the effect;
//   - the database can record the success while the lease lasts.
//
// The handler's context is cancelled with the cause ErrLeaseLost before the lease is over. Three cases escape that: a
// process that is suspended for longer than its lease, a database whose clock jumps, and a handler that ignores its
// context. For these, Fence returns a fencing token that rises with every lease of the key until the key is purged.
// Send it along, so that the other side can refuse a late writer. If the database refuses the record itself, the
// message fails permanently.
//
// # Isolation and waits
//
//	                          PostgreSQL                MySQL, MariaDB               SQLite
//	isolation                 READ COMMITTED, always    the same                     serializable
//	a duplicate waits, until  on the unique key         the same; the server waits   behind all writers of the
//	its context ends                                    on for its time-out          process
//	a lock time-out           transient, counted        tried again; with            tried again for 30 s, then
//	                                                    wmsql.Join transient,        transient, counted
//	                                                    uncounted
//	a deadlock,               transient: all was        the same; a handler that     there is none
//	a serialization failure   rolled back               went on gets a permanent
//	                                                    error
//
// A commit without an answer is an error, and the next delivery finds what became of it.
//
// # A handler that ends the transaction
//
// Tx is the *sql.Tx of the transaction. A handler that ends it, by Commit, Rollback or in SQL, and returns nil gets a
// permanent error. What it committed stays, with the key, so that a redrive is absorbed; that is a permanent error also
// if the handler returns an error. A handler that rolls back and returns an error keeps its error.
//
// # PostgreSQL
//
// PostgreSQL locks the key alone. Handlers of different keys run at the same time, each on a connection of its own. A
// duplicate that waits holds a connection too. The transaction is READ COMMITTED. After a failed statement PostgreSQL
// refuses all others and commits nothing: return the error, or set a SAVEPOINT first and roll back to it. Close rows
// before the handler returns.
//
// A claim costs two round trips beside BEGIN and COMMIT: one for the key, and one that asks before the commit whether
// the transaction is the one that entered the key. Outputs cost another. Package pgxstore has a quicker store for pgx.
//
// # MySQL and MariaDB
//
// All that is said of PostgreSQL's connections, isolation and open rows holds here too. A failed statement does not
// end the transaction, except for a deadlock, which rolls everything back, the key included. What a handler writes
// after a deadlock, on the same Tx, commits on its own and stays, and the handler gets a permanent error: return the
// error of a failed statement. A statement that commits before it runs, such as CREATE TABLE, ends the transaction as a
// COMMIT does. A handler's tables must be InnoDB: no other engine takes anything back. A claim costs four round trips
// beside BEGIN and COMMIT: the isolation, the key, a savepoint behind it, and its release before the commit, which
// shows whether the transaction is still the same.
//
// # SQLite
//
// SQLite has one write lock per file. The receiver holds it from the key to the commit, so the handlers of one *sql.DB
// run one after another, in turn. Keep them short, and write through Tx alone: a write through the *sql.DB would wait
// for the handler's own lock. Prefer WAL mode, in which readers go on beside the writer. SQLite lets a handler write on
// after some failed statements have rolled its transaction back. What it wrote after that stays, and it gets a
// permanent error.
package idempotency
