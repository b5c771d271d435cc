// Package crashlimit sets aside the messages that end the process: os.Exit in a library, a crash in C, all memory gone. No
// middleware sees such an end, so the message comes again, and ends the next process too. A Limit counts the deliveries of
// a message that did not return, in a database, and refuses the message before the handler sees it when they are too many.
//
//	limit, err := delivery.NewLimit(delivery.LimitConfig{Store: delivery.Postgres(db)})
//	router.AddPlugin(limit.Plugin)
//	router.AddMiddleware(queue.Middleware, limit.Middleware, retry.Middleware, receiver.Middleware)
//
// The poison.Queue outside of it makes a dead letter of what is refused, with reason max_delivery_count_exceeded. Without
// one the refusal is a nack, and the message comes and is refused for ever. It works over any pub/sub, with an idempotent
// receiver and without.
//
// # How it works
//
// A process registers when its router starts, beats every 2 seconds while it runs, and signs off when the last message has
// returned. As long as all do, nothing else happens: a message costs some nanoseconds and no statement. An end without
// signing off is an unclean end, also that of a router which gave up waiting for its handlers, whose messages do not count:
//
//	quiet ──another process stopped beating, or was there already when this one began──▶ marking
//	  ▲                                                                                    │
//	  └──those that were there beat on or signed off, or 10 minutes without an unclean end─┘
//
// While marking, a delivery leaves a mark in the database before the handler runs, and removes it when the handler ends in
// any way that leaves the process alive: success, error, panic, runtime.Goexit, shutdown. Where the handler produced messages,
// the mark stays until the message is acked or nacked: their publisher can end the process too. A mark of a process that ended
// is that of a delivery which did not return. After LimitConfig.Max of them the message is refused. Its marks go as soon as the
// message is acked, so that a letter which finds no place does not let it kill again.
// The count x-redrive-count is part of a mark's key: a redriven message starts anew in any case.
//
// # What is no death
//
//   - What this process lived through. A mark names the process that wrote it, by an id which no other process ever has.
//   - A delivery that still runs in another process, after a lost session, a rebalance or an ack deadline. Where the marks of
//     processes that may still live decide, the message waits, beside the others, until each of them has beaten twice, was
//     found lost, or took its mark along. That takes 4 to 10 seconds. A message that cannot wait for it, or that waited for a
//     minute, is given back uncounted.
//   - An orderly end. When the router's last handler has received its last message, the marks of all deliveries that are
//     still open are removed before Router.Run returns, and no new ones are left. So a handler that outlasts the router's
//     CloseTimeout counts for nothing. If it ends the process meanwhile, that death is not counted either, and the message is
//     delivered once more than Max says. If the process is killed before the marks are removed, or the database is away then,
//     they count.
//
// Nothing counts before the first unclean end was noticed: by a process that starts, at once, and by others after three beats.
// So a deadly message ends Max + 1 processes where each is started again, and where a broker hands it at once from one running
// process to the next, as many more as it reaches within these 6 to 8 seconds.
//
// # Bystanders
//
// What was in flight beside a deadly message is counted too. So a message with a mark from before is a suspect, and is
// handled alone in its process: it waits until no other message is being handled, and others wait for it. If the process
// ends again, only the suspect is counted, and waiting counts nothing; so bystanders have one delivery that never returned,
// and their success clears it. A suspect waits in line for as long as others come and go. When none does for
// LimitConfig.AloneWait, or when half of the time that its context has is over, it goes on in company: handlers may wait for
// each other. Where handlers take longer than that, bystanders may be counted more often, and in the end set aside.
//
// # What it does not do
//
//   - It compares no clocks: a process has stopped when its beats have not changed for three beats of its own and three of
//     the process that looks. One that is suspended for longer, or has no connection to the database, is taken for dead: what
//     it is at counts until it beats again, or removes its mark.
//   - A new process beside others marks until each of them has beaten twice: it cannot tell them from the remains of a crash.
//   - It never stops a consumer. While the database fails, messages are handled unmarked, and only the beats ask it. The first
//     that meet a silent database wait for it, 2 seconds (10 on SQLite). An outage is one line in the log when it begins and
//     one when it ends. Only a router that starts with the plugin needs the database, so that a deadly message ends each
//     process at most once during an outage.
//   - It knows a message by its id, without one by LimitConfig.Coordinates, and without both by what it holds. Where all of
//     these change from delivery to delivery, give a LimitConfig.Key. Of messages that only their equal content names, processes
//     that may still live are not waited for and do not count: a deadly one may end some processes more. Each process counts
//     once, however many of them it was at. A message that is handled twice at the same time in one process has one mark.
//   - It remembers 1,024 marks that it could not remove because the database was away, and as many of refused messages that
//     are neither acked nor nacked yet. More are forgotten, and the first is logged: they count until the message is handled
//     to the end again, or for 30 days. Of messages whose outputs are being published it follows 1,024 at a time.
//   - A panic that nobody recovers, outside of a router and of middleware.Recover, runs the deferred removal of the mark
//     before it ends the process, so that it counts for nothing. Routers recover panics; those of a handler's own
//     goroutines remove nothing, and count.
//
// # The broker's own count
//
// Where the broker counts, LimitConfig.Delivered serves beside a store or alone, as wmamqp.DeliveryCount does on quorum
// queues. Brokers cannot tell a consumer that died from one that nacked, was closed or lost its connection: Max is 20 by
// default for their count, and stays 3 for the store's. What is set is for both: let it be generous.
package crashlimit
