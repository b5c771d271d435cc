// Package delivery sets aside the messages that end the process: os.Exit in a library, a crash in C, all memory gone. No
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
// signing off is an unclean end, also that of a router which gave up waiting for its handlers:
//
//	quiet ──another process stopped beating, or was there already when this one began──▶ marking
//	  ▲                                                                                    │
//	  └──those that were there beat on or signed off, or 10 minutes without an unclean end─┘
//
// While marking, a delivery leaves a mark in the database before the handler runs, and removes it when the handler ends in
// any way that leaves the process alive: success, error, panic, runtime.Goexit, shutdown. A mark that is there already is
// that of a delivery which has not returned: as a rule its process ended. After LimitConfig.Max of them the message is refused.
// Its mark goes with the beat after the message was acked, so that a letter which finds no place does not let it kill again,
// and a redriven message starts anew.
//
// A delivery may also still run elsewhere: brokers hand on what a consumer is at, after a rebalance or an ack deadline. While
// marking, it is counted like one whose process ended, until any delivery of the message ends in order, which clears the
// count. So while Max live processes are at the same message, the next delivery is refused though nobody died. Who just died
// cannot be told from who lives before some beats are missing, and to let the message go on meanwhile would end more
// processes. Where handlers outlast the broker's patience, let Max be more than can be at one message at the same time.
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
//     whoever looks. One that stopped for less, or that has no connection to the database, may be taken for dead; then
//     deliveries are marked for a while, and no message is refused unless Max others are at it, as above.
//   - A new process beside others marks until each of them has beaten twice: it cannot tell them from the remains of a crash.
//   - It never stops a consumer. While the database is down, messages are handled unmarked, after one wait of 2 seconds (10
//     on SQLite) every 5 seconds. Only a router that starts with the plugin needs it.
//   - It knows a message by its id. Where ids or, of messages without one, metadata change from delivery to delivery, give
//     a LimitConfig.Key. A message that is handled twice at the same time in one process has one mark.
//   - It remembers 1,024 marks that it could not remove because the database was away, and as many of refused messages that
//     are neither acked nor nacked yet. More are forgotten, and the first is logged: they count until the message is handled
//     to the end again, or for 30 days.
//   - A panic that nobody recovers, outside of a router and of middleware.Recover, runs the deferred removal of the mark
//     before it ends the process, so that it counts for nothing. Routers recover panics; those of a handler's own
//     goroutines remove nothing, and count.
//
// # The broker's own count
//
// Where the broker counts, LimitConfig.Delivered serves beside a store or alone, as wmamqp.DeliveryCount does on quorum
// queues. Brokers cannot tell a consumer that died from one that nacked, was closed or lost its connection: Max is 20 by
// default for their count, and stays 3 for the store's. What is set is for both: let it be generous.
package delivery
