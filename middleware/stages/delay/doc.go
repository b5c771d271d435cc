// Package delay keeps messages in a table until they are due, for stages that need no topics. Messages of any delays
// wait beside each other in one table, whatever pub/sub they come from and go to.
//
//	store, err := delay.NewStore(ctx, db, "shop") // PostgreSQL, MySQL, MariaDB or SQLite
//	retries, err := stages.New(queue, stages.Config{Stages: stages.Delays(time.Minute, time.Hour), Store: store, ...})
//
// Stages that wait in topics need no database. They know only fixed delays, and keep the order in which messages came.
// From a Store messages leave in the order in which they are due.
//
// # How it works
//
// Stages put a message as a row into the table spillway_delayed. Their relay looks for the first row that is due,
// sleeps until it is, at most 1 second, and then does this again and again:
//
//	take     at most 200 rows that are due, and about 16 MiB: a token and a lease in one short transaction
//	publish  in due order, messages of one topic that follow each other in one call; no transaction is open meanwhile
//	delete   what was published, if the token is still the relay's
//
// Any number of relays, in any number of processes, share the work: a relay skips the rows that another one is taking.
// The cost of a take depends on the batch, not on how many messages wait. A relay that finds nothing costs one index
// lookup a second.
//
// A message is known at once to the relays of the same *Store. One that was put in another process, or in a transaction
// that commits after the message is due, is found by the next look. Such a message may be late by a second.
//
// # Time
//
// Due times and leases are by the database's clock alone, in microseconds: no clocks of machines are compared. On
// SQLite that is the clock of the machine, in milliseconds. A message is never early by that clock. If the clock jumps,
// messages are early or late by as much. A relay neither spins nor sleeps for longer than a second.
//
// A look reads the rows that are due of topics that refuse, and what an old snapshot keeps of deleted rows: some 50
// milliseconds for 100,000 of them.
//
// # In one transaction
//
// A message from a wmsql.Subscriber on the same *sql.DB is put in the transaction that consumes it. The delay and the
// acknowledgement commit together, or neither does. Otherwise the message is durable before it is acknowledged. If the
// acknowledgement fails, the message is redelivered and may be put a second time.
//
// # What may go wrong
//
//   - A process dies between publishing and deleting. The messages are published again when their lease is over. Every
//     message is published at least once. Messages keep their ids, so an idempotent receiver absorbs the duplicates.
//   - A publisher fails, panics or ends its goroutine. The messages stay, and come back after a wait that doubles. It
//     is at most a minute for a message that is refused alone. It is at most 30 seconds for a topic that refused three
//     in a row or several at once.
//   - A topic refuses. Other topics go on after the failed call has returned. Rows of the topic are passed over and not
//     written again, until one is tried.
//   - A message is refused for good: the stages dead-letter it. If that fails too, it is tried once a minute, and
//     logged, until its row is deleted.
//   - A publisher takes its time. The lease is renewed for ten leases in a call. After that others may take the
//     messages too.
//   - The database is down. The relay logs it, and tries again within 5 seconds. What was published meanwhile is
//     deleted first. If a message cannot be put, the stages requeue it.
//
// # What is not promised
//
// Order. A relay publishes a batch in due order, and takes rows in the order in which they came due. Two relays are not
// ordered against each other. Nor is a message that failed, or was left behind by a process that died. Messages with
// the same due time leave in the order in which they were put, if they were put one after another.
package delay
