// Package wmsql is a subscriber and a publisher for topics that are tables in PostgreSQL, MySQL or MariaDB. All of a
// message commits in one transaction, or nothing does: the handler's writes, its key, the outputs, the dead letter, and
// the acknowledgement. The tables are those of watermill-sql. The Subscriber can replace watermill-sql's subscriber,
// and be replaced by it again.
//
//	sub, err := wmsql.NewSubscriber(ctx, db, wmsql.SubscriberConfig{ConsumerGroup: "billing"})
//	dead, err := wmsql.NewPublisher(ctx, db, wmsql.PublisherConfig{}) // outputs of handlers need another one
//	keys, err := wmsql.Join(ctx, sub, "shop")
//	dlc, err := spillway.New(ctx, spillway.Config{
//		Publisher:   dead,
//		Idempotency: keys,
//		Queue:       poison.QueueConfig{Origin: wmsql.Origin},
//	})
//
//	func handle(msg *message.Message) ([]*message.Message, error) {
//		tx := idempotency.Tx(msg.Context())
//		_, err := tx.ExecContext(msg.Context(), `UPDATE account ...`)
//		return []*message.Message{booked}, err
//	}
//
// # The transaction
//
// A subscription consumes a batch of messages in one transaction. A batch has at most SubscriberConfig.Batch messages,
// all begun within 5 ms. Each attempt at a message has a savepoint, and idempotency.Tx returns a *sql.Tx of that
// savepoint. So a statement that fails spoils only its attempt. This is what becomes of a message, and of those before
// it in the batch:
//
//	the message                              it                            those before it
//	is acked                                 commits with the others       commit
//	is nacked                                is undone, comes again        commit at once
//	overruns AckDeadline by one second       is undone, comes again        are undone, come again
//	is handled while the Subscriber closes   has 5 s, then is undone       commit if it settles, else are undone
//	meets a deadlock, a serialization error  is undone, comes again        are undone, come again
//	or a lost connection                     without counting
//	interrupts a statement by its context    is undone, comes again        are undone, come again
//	is refused in the COMMIT (a constraint   is undone, comes again        are undone, come again
//	that is checked there)
//	ends the transaction in SQL (COMMIT,     comes again, and is absorbed  come again; what was committed is absorbed
//	ROLLBACK, DDL on MySQL)                  if its key was committed
//
// The 5 s are spillway.Config.DrainTimeout, and the grace of one second comes after it. No further message is begun.
//
// What is undone leaves nothing in the database. Late statements get an error that wraps sql.ErrTxDone.
//
//   - After a rollback each message has a transaction of its own for a while. So a message that always fails in this
//     way holds up no other message.
//   - After 5 deliveries such a message is dead-lettered with reason max_delivery_count_exceeded. If other
//     transactions or the server caused each rollback, that takes ten times as many: the message may crash the server.
//   - A message that waits for its next delivery holds no transaction. While what its handler needs is unavailable, the
//     subscription begins none, and uses no connection. A message that is requeued for that is not counted.
//   - If a handler settles its message itself, the transaction waits for the handler, at most one second. Once the
//     message is acked, a later letter or output of it is published in a transaction of its own.
//   - If the answer to a COMMIT is lost, the next transaction begins where the table of positions says.
//   - MySQL and MariaDB notice a client's end only when the interrupted statement ends. Until then the group stands
//     still: limit slow statements on the server too (max_statement_time).
//
// # Who takes part
//
// The store of Join and a Publisher take part if they are on the same *sql.DB and get the message's context. What a
// handler writes through the *sql.DB itself does not. With watermill-sql's own subscriber use idempotency.NewStore,
// which has transactions of its own. At its ack deadline, and when it closes, that subscriber commits what a running
// handler has half done. Handlers that call its TxFromContext must call idempotency.Tx here.
//
// A statement may leave something in the session until the transaction ends: SET LOCAL, a temporary table, a cursor.
// After such a statement the batch ends with its message, so that the next message does not find it.
//
// # Order by key
//
// With spillway.Config.Ordered and SubscriberConfig.Key, a message that must be tried later is parked in the
// transaction, and later ones of its key are parked behind it. What is parked is handled by the instance that has the
// position, a few messages in a transaction of their own, also when no new message comes. Their rows go with their
// effects. At the limits of what may be parked the group waits. The store of keys must be that of Join.
//
// # Reading on PostgreSQL
//
// The Subscriber compares rows in a way that the index answers at any backlog. A message becomes visible when every
// transaction that began before its own has ended. So one transaction that stays open anywhere in the database delays
// the messages of all topics, also with watermill-sql.
//
// # Reading on MySQL and MariaDB
//
// Numbers become visible out of order, and watermill-sql's subscriber passes over those that come late, for good. The
// Subscriber waits for a missing number: GapWait once, and longer while a transaction has an uncommitted row in the
// gap. One case remains: a server that gives out a number and needs more than GapWait to write the row. That row is
// passed over. To find such rows, compare the table's row count with what was handled, or the rows up to offset_acked
// with the keys.
//
//   - With auto_increment_increment above 1 there is a gap before every number. Throughput stays; each message is later
//     by at most GapWait.
//   - In a Galera cluster a node sees another node's message when it has applied it, and GapWait must cover that lag.
//     Let all publishers and subscribers of a topic use one node at a time. Several writers at once are not supported,
//     and no test covers a cluster. The same holds for two masters that replicate to each other.
//
// # Messages that cannot be read
//
// If a row cannot be read (metadata such as {"n":1}), the message has the payload's bytes, and the column's metadata as
// KeyMetadata. poison.Queue dead-letters it, so handlers need a queue. watermill-sql's subscriber stands still.
//
// # A position of another table
//
// PostgreSQL counts transaction ids from the start again when a dump is restored, or replicated, into another server.
// MySQL counts numbers from the start again after TRUNCATE. New messages are then behind the position and would be
// passed over. Subscribe returns ErrPositionAhead, and a running subscription logs it and stands still. RestartIfAhead
// begins at the start of the table. Deleted rows are no evidence, and neither is a position that was moved by hand. The
// evidence is:
//
//	PostgreSQL       the position or a message has a transaction id that the server has yet to give out
//	MySQL, MariaDB   the table has yet to give out the position's number;
//	                 the message with that number is another one: offset_consumed holds a negative number for this, made of
//	                 the id of the message that was acknowledged last
//
// On PostgreSQL a position that was refused becomes one that no server reaches. It stays refused until RestartIfAhead,
// or until you set the position or delete its row.
//
// A wrong position is not found in these cases; after a move, set the position by hand or delete its row:
//
//   - PostgreSQL: the server's ids have passed the position before a subscription looks. A running one looks each
//     second.
//   - MySQL: the message at the position was deleted, or watermill-sql's subscriber wrote the position, and the numbers
//     have passed it by then.
//
// # Retrying later
//
// Give stages.Stages a delay.Store on the same *sql.DB: a message to retry later is stored in the transaction that
// acknowledges it. Do not use stage topics of a Subscriber. A message that waits there holds a transaction open, and
// with it, on PostgreSQL, the messages of all topics. Such a wait is interrupted every second, and logged as an error.
//
// # Writing
//
// The tables that a Publisher creates take payloads of any bytes. Ids of more than 36 characters, and ids and metadata
// that are not text, are in KeyCarried, and the Subscriber restores them. A topic whose table name the database would
// cut short is refused, because two topics would share one table. A column may refuse the values of a dead letter, for
// example a payload that is not JSON in a table of watermill-sql's. Then the whole letter is written as ASCII, and the
// Subscriber restores it.
//
// MySQL closes the connection on a statement longer than max_allowed_packet, which ends the transaction. So the
// Publisher refuses a message as too large if it leaves less than 128 KiB of max_allowed_packet for its letter. Of a
// larger one, by another publisher, there may be no letter in a table: set poison.QueueConfig.Fallbacks. On PostgreSQL
// the limit is 1 GiB.
//
// # What is not promised
//
//   - Order: a message that is dead-lettered and redriven comes behind the others. Without Ordered, so does one that
//     waits in a delay store.
//   - Effects outside of the transaction, such as calls to other services, happen at least once. A message may be
//     handled again because of another one in its batch; Batch 1 avoids that.
//   - A statement that commits implicitly, such as DDL on MySQL, commits the writes before it with the key, but not the
//     acknowledgement. The effect is still one. Outputs of the batch may be published again, with the same ids. If the
//     handler fails after that, its message is dead-lettered, because a new delivery would be absorbed.
//   - A handler that ignores its context runs on beside the next delivery, without access to the database.
//   - A connection that dies silently is noticed when TCP or a time-out of the driver's notices it. Until then, or
//     until Close, its consumer waits.
//   - Further result sets of one query, as of a procedure on MySQL: a handler's rows have the first alone.
//   - Rows are never deleted.
package wmsql
