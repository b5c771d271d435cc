// Package delay keeps messages in a table until they are due, and then publishes them. Any delay can have its place beside
// any other, and what waits is one table, whatever pub/sub the messages come from and go to.
//
//	store := delay.Postgres(db)
//	relay, err := delay.NewRelay(delay.RelayConfig{Store: store, Publisher: publisher})
//	router.AddPlugin(relay.Plugin)
//
//	err = store.Put(ctx, "reminders", msg, 36*time.Hour)
//
// Topics as stages, each of which waits for a time of its own, need no database, but know only those times, and keep the
// order in which messages came. Here messages leave in the order in which they are due.
//
// # How it works
//
// Put inserts a row of the table spillway_delayed. A Relay looks for the first row that is due, sleeps until it is, at most
// RelayConfig.Poll, and then does this again and again:
//
//	take     at most Batch rows that are due, and about 16 MiB: a token and a lease in one short transaction
//	publish  in due order, messages of one topic that follow each other in one call; no transaction is open meanwhile
//	delete   what was published, if the token is still the relay's
//
// Any number of relays, in any number of processes, share the work: rows that one is taking are skipped by the others. What
// the take costs depends on the batch, not on how many messages wait. A relay that finds nothing costs one index lookup
// per Poll.
//
// A Put in a relay's own process is known to the relays of the same *Store at once. One from another process, or in a
// transaction that commits after the message is due, is found by the next look: it may be late by Poll.
//
// # Time
//
// Due times and leases are by the database's clock alone, in microseconds: no clocks of machines are compared. On SQLite that
// is the clock of the machine, in milliseconds. A message is never early by that clock. When the clock jumps, messages are
// early or late by as much; a relay neither spins nor sleeps for longer than Poll.
//
// A relay begins to look at the first row. While that takes longer than 10 milliseconds, because a topic refuses or because
// an old snapshot keeps what was deleted in the index, it begins further behind, and at the first row once in a hundred
// times as long. A message is late by that much then if it was committed more than 10 seconds after it was due, or given
// back by another relay.
//
// # In one transaction
//
// With the context of a message from a wmsql.Subscriber on the same *sql.DB, Put writes in the transaction that consumes the
// message: the delay and the acknowledgement commit together, or neither does. Everywhere else Put is durable when it
// returns nil, and what comes after it may fail: then the message comes again, and is put a second time.
//
// # What may go wrong
//
//   - A process dies between publishing and deleting: the messages are published again when their lease is over. Every
//     message is published at least once; an idempotent receiver absorbs the others. Messages keep their ids.
//   - A publisher fails, panics or ends its goroutine: the messages stay, and come back after a wait that doubles, up to a
//     minute for one that is refused alone, and up to 30 seconds for a topic that refused three in a row or several at once.
//     Other topics go on meanwhile, after the failed call has returned: what waits for a topic that refuses is passed over,
//     and not written again; one message is tried each time. To pass over many rows for the first time takes about
//     2 seconds for a million, and so does the search for what came in front of them, in at most a hundredth of the time. Nothing is given up that RelayConfig.GiveUp
//     does not take: what is refused for good is tried once a minute, and logged, until somebody deletes its row.
//   - A publisher takes its time: the lease is renewed while it does, for ten leases in a call. After that others may take
//     the messages too.
//   - The database is down: the relay logs it, and tries again within 5 seconds. What was published meanwhile is deleted
//     first. A Put that fails is an error for its caller to handle; Stages give the message back.
//
// # What is not promised
//
// Order. A relay publishes a batch in due order, and takes rows in the order in which they came due. Two relays are not
// ordered against each other, nor is what failed, or was left behind by a process that died. Messages put with the same due
// time leave in the order in which they were put, if they were put one after another.
package delay
