// Package wmsql is what Spillway knows about tables as topics, on PostgreSQL, MySQL and MariaDB: a subscriber and a
// publisher with which everything about a message is in one transaction. It stands on watermill-sql, on the same tables,
// and can take the place of its subscriber and be taken back.
//
//	sub, err := wmsql.NewSubscriber(ctx, db, wmsql.SubscriberConfig{ConsumerGroup: "billing"})
//	dead, err := wmsql.NewPublisher(ctx, db, wmsql.PublisherConfig{}) // a handler's outputs need another one
//	keys, err := wmsql.Join(ctx, sub, idempotency.StoreConfig{Service: "shop"})
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
// The handler's writes, the key by which a duplicate is known, the messages it produces, its dead letter and the
// acknowledgement commit together or not at all.
//
// # The transaction
//
// A subscription consumes a few messages in one transaction: Batch of them, 10 by default, or as many as begin within
// BatchTime, 5 ms. Each attempt at each message has a savepoint, and idempotency.Tx returns a *sql.Tx of that savepoint. So
// a statement that fails spoils its attempt alone. What becomes of a message, and of those before it in the transaction:
//
//	the message                              it                            those before it
//	is acked                                 commits with the others       commit
//	is nacked                                is undone, comes again        commit at once
//	overruns AckDeadline and SettleGrace     is undone, comes again        are undone, come again
//	is handled while the Subscriber closes   has SettleGrace, then undone  commit if it settles, else are undone
//	meets a deadlock, a serialization error  is undone, comes again        are undone, come again
//	or a lost connection                     without counting
//	interrupts a statement by its context    is undone, comes again        are undone, come again
//	is refused in the COMMIT (a constraint   is undone, comes again        are undone, come again
//	that is checked there)
//	ends the transaction in SQL (COMMIT,     comes again, and is absorbed  come again; what was committed is absorbed
//	ROLLBACK, DDL on MySQL)                  where its key was committed
//
// What is undone leaves nothing in the database, and late statements get an error that wraps sql.ErrTxDone. After a
// transaction that was rolled back, messages have one each for a while, so that one that always fails in this way holds
// up nobody but itself; and delivered MaxDeliveries times it is set aside with reason max_delivery_count_exceeded, or ten
// times as often where others were to blame each time (it may be what crashes the server). A message that waits to come again holds no transaction. A handler that settles its message itself is waited for, up
// to SettleGrace, so that nothing is committed in the middle of it; and once it has acked, a letter or output that comes
// of it later is published by itself.
//
// MySQL and MariaDB notice at the end of an interrupted statement that its client has gone. Until then it holds the
// position, and the group stands still: bound slow statements on the server too (max_statement_time).
//
// A COMMIT whose answer is lost with the connection happened or did not: the table of positions knows, and the next
// transaction begins there.
//
// # Who joins
//
// The store of Join and a Publisher on the same *sql.DB join, by the context of the message. What a handler writes
// through the *sql.DB itself does not. With watermill-sql's own subscriber the kit works in transactions of its own
// (idempotency.Postgres, idempotency.MySQL), and Join refuses it: at its ack deadline, and when it is closed, it commits
// what a running handler has half done. Handlers that use its TxFromContext must use idempotency.Tx here: the key of that
// value is not exported.
//
// What a handler leaves in the session until the transaction ends, by SET LOCAL, a temporary table, a cursor, the message
// behind it does not find: after a statement that may leave something the batch ends with its message.
//
// # Reading
//
// PostgreSQL: READ COMMITTED, and a comparison of rows which the index answers at any backlog. A message is visible when
// every transaction that began before its own has ended; so a transaction that stays open anywhere in the database, a
// handler's too, delays the messages of all topics, as with watermill-sql.
//
// MySQL and MariaDB: READ COMMITTED. Numbers become visible out of order, and watermill-sql's subscriber passes over
// those that come late, for good. Here a number that is missing is waited for, GapWait once, and for as long as anybody
// has an uncommitted row in the gap. What remains is a server that gives a number out and takes longer than GapWait to
// enter its row: that row would be passed over. Compare SELECT count(*) of the table with what was handled, or the rows at
// and below offset_acked with the keys, to see it.
//
// With auto_increment_increment above 1 there is a gap before every number: throughput stays, each message is later by up
// to GapWait. Galera: the nodes give out numbers in turns, and a node sees another node's message when it has applied it.
// GapWait is then the longest that a node may lag behind in this, and nothing shows that one lags longer. So let all
// publishers of a topic, and its subscribers, use one node at a time; then a cluster is as safe as one server. Several
// writers at once are not supported, and no test covers a cluster. The same holds for two masters that replicate to each
// other.
//
// What a schema adapter cannot read (metadata such as {"n":1}) becomes a message with the payload's bytes, and the
// metadata's as KeyMetadata, that poison.Queue sets aside; watermill-sql's subscriber would stand still. So handlers need
// a queue around them.
//
// # A position of another table
//
// PostgreSQL gives out transaction ids from the start again when a dump is restored, or replicated, into another server;
// MySQL gives out numbers from the start again after TRUNCATE. What is published from then on is behind the position and
// would be passed over. Subscribe returns ErrPositionAhead then, and a running subscription logs it and stands still.
// RestartIfAhead goes on from the start. Deleted rows are no reason, nor is a position that was moved by hand. What shows
// that a position is wrong:
//
//	PostgreSQL       it, or a message, has a transaction id that the server has yet to give out; or the server is another
//	                 one, and a message with a higher number has a lower transaction id; or it was refused before
//	MySQL, MariaDB   the table has yet to give out its number, or the message with its number is another one; for
//	                 that, offset_consumed holds a number below zero, made of the id of the message acknowledged last
//
// On PostgreSQL the column spillway_server of the table of positions holds the server's identifier (pg_control_system),
// or the refusal. SubscribeInitialize and InitializeSchema add it, also to a table that is there; without them run ALTER
// TABLE "watermill_offsets_<topic>" ADD COLUMN spillway_server TEXT. watermill-sql's subscriber leaves it as it is. A
// refused position stays refused until RestartIfAhead, or until a person sets the position or drops its row. When the
// server is found to be another one, the messages of the topic are read once, in full. pg_upgrade makes another server
// whose ids go on: the group goes on, and the new identifier is recorded. It is refused there by mistake if the last
// transactions before the upgrade overlapped, so that a message with a higher number has a lower id. If every message
// before the upgrade was handled, set spillway_server to null: the group goes on where it is.
//
// Nothing shows on PostgreSQL that a position is wrong if no identifier is on record (the column is missing or null, or
// the role may not call pg_control_system), and the server's ids have passed the position before a subscription looks.
// An order of numbers is no evidence on one server: transactions that overlap make higher numbers with lower ids. Nothing
// shows it on MySQL when the message with the number of the position was deleted, or the position was written by
// watermill-sql's subscriber, and the numbers have passed it by then. After a move set the position by hand, or drop its
// row.
//
// # Retrying later
//
// Give stages.Stages a delay.Store on the same *sql.DB: a message that is to be handled later is put there in the
// transaction that acknowledges it. In a stage topic of a Subscriber a message that waits would hold a transaction open, and
// with it, on PostgreSQL, the messages of all topics; such a wait is broken off every second, and logged as an error.
//
// # Writing
//
// The tables that a Publisher makes take payloads of any bytes. Ids beyond 36 characters, and ids and metadata that are no
// text, are carried aside (KeyCarried) and put back by the Subscriber. A name that the database would cut short is
// refused: two topics would share one table. A dead letter whose values a column refuses, such as a payload that is no JSON in
// a table that watermill-sql made, is carried as a whole in ASCII; a Subscriber reads it as it was.
//
// MySQL closes the connection on a statement longer than max_allowed_packet, and the transaction ends with it, on every
// attempt anew. What is longer is written by several statements. So the dead letter of any message that came in one
// statement can be written, whatever published it; metadata of close to max_allowed_packet, a payload type other than LONGBLOB
// and a schema adapter of your own are the exceptions. And a Publisher refuses a message as too large that leaves less than
// 128 KiB of max_allowed_packet for its letter, wherever that may be stored; on PostgreSQL, of 1 GiB.
//
// # What is not promised
//
// Order: a message that is set aside and comes back comes behind the others. Effects outside of the transaction, such as
// calls to other services: they happen at least once, and a message may be handled again because of another in its
// batch (Batch 1 avoids that). A statement that commits implicitly, such as DDL on MySQL, commits what was done before it,
// with the key, so that the effect is still one, but not the acknowledgement: outputs of the batch may then be published a
// second time, with the same ids. A handler that fails after that has its message set aside, because delivered again it
// would be absorbed. A handler that does not heed its context runs on beside the next delivery, without access to the
// database. A connection that is dead without a word is noticed when TCP, or a time-out of the driver's, notices it; until
// then, or until Close, its consumer waits. Rows are never deleted.
package wmsql
