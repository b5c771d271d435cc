// Package crashlimit dead-letters messages that end the process: os.Exit in a library, a crash in C, all memory gone.
// No middleware sees such an end, so the message is redelivered, and ends the next process too. A Limit counts the
// unfinished deliveries of a message in a database. If there are too many, it refuses the message before the handler
// sees it.
//
//	store, err := sqlmarks.NewStore(ctx, db, "shop")
//	limit, err := crashlimit.New(crashlimit.Config{Store: store})
//	router.AddPlugin(limit.Plugin)
//	router.AddMiddleware(queue.Middleware, limit.Middleware, retry.Middleware, receiver.Middleware)
//
// The poison.Queue outside of the limit makes a dead letter of what is refused, with reason
// max_delivery_count_exceeded. Without a queue the refusal is a nack, so the message is redelivered and refused without
// end. The limit works over any pub/sub, with an idempotent receiver and without.
//
// # How it works
//
// A process registers when its router starts, sends a heartbeat every 2 seconds while it runs, and signs off when the
// last message has returned. As long as all processes sign off, nothing else happens: a message costs some nanoseconds
// and no statement. An unclean end is one without signing off:
//
//	quiet ──another process stopped, or was there already when this one began──▶ marking
//	  ▲                                                                             │
//	  └──those that were there beat on or signed off, or 10 minutes without a crash─┘
//
// While marking, each delivery leaves a mark in the database before the handler runs. The mark is removed when the
// handler ends in any way that leaves the process alive: success, error, panic, runtime.Goexit, shutdown. If the
// handler produced messages, the mark stays until the message is acked or nacked: their publisher can end the process
// too. So a mark of a process that ended is an unfinished delivery.
//
// After Config.Max of them the message is refused. Its marks stay until a dead letter of it has its place, so a message
// whose letter cannot be placed does not end another process. They stay for 10 minutes more: an ack can be lost with
// the process, because Kafka's client commits once a second, and the next message may end the process. The message
// then comes again, and is acked, because a mark says that its letter has its place. It has a second letter only if
// the process ended before that mark was written, if its content is another, or after the 10 minutes. The subscribers
// of wmkafka, wmamqp and wmsql place a refused message, and settle it at the broker, before they deliver the next one.
// Another middleware than poison.Queue places no letter that the limit knows of: the marks then stay for 30 days.
// The count x-redrive-count is part of a mark's key: a redriven message starts at zero.
//
// # What does not count
//
//   - What this process lived through. A mark names its process by an id that no other process has.
//   - A delivery that still runs in another process, after a lost session, a rebalance or an ack deadline. If marks of
//     processes that may still live decide, the message waits. It waits until each of them has sent two heartbeats, is
//     found lost, or took its mark along. That takes 4 to 10 seconds. A message that cannot wait, or that waited for a
//     minute, is requeued.
//   - An orderly end. When the router's last handler has received its last message, no new marks are left. The marks of
//     open deliveries are removed before Router.Run returns. So a handler that outlasts the router's CloseTimeout does
//     not count, even if it ends the process meanwhile. Its message is then delivered once more than Max says. If the
//     process is killed before the marks are removed, or the database is unavailable then, they count.
//
// Counting starts when the first crash is detected: at once by a process that starts, and after three heartbeats by
// processes that run. So a deadly message ends Max + 1 processes if each is started again. Deadly messages that come
// one right after the other end Max processes each, and the first of them one more. A broker may hand the message at
// once from one running process to the next. Then it ends as many more as it reaches within these 6 to 8 seconds.
//
// # Bystanders
//
// Messages that were in flight beside a deadly one are counted too. A message with a mark from before is a suspect. A
// suspect is handled alone in its process: it waits until no other message is being handled, and others wait for it. If
// the process ends again, only the suspect is counted. So a bystander has one unfinished delivery, and its success
// clears it.
//
// A suspect waits in line as long as others come and go. It runs beside the others if none comes or goes for 30
// seconds, or if half of the time of its context is over. The reason is that handlers may wait for each other. If
// handlers take longer than that, bystanders may be counted more often, and in the end dead-lettered. Suspects run one
// after the other: 100 of 50 ms take 5 seconds.
//
// # What each part is for
//
// A count of crashes alone is a third of this package. Each other part was taken out once, and a test failed:
//
//   - Suspects run alone. Otherwise three healthy messages of 50 were dead-lettered beside two deadly ones (row D10 of
//     conformance).
//   - Processes that may still live are waited for. Otherwise a message was dead-lettered because eight sessions were
//     lost while its handlers went on (TestSecondDeliveryWaitsForTheFirst).
//   - A mark stays until outputs are published. Otherwise a message whose publisher ends the process was never refused
//     (TestMarkStaysUntilPublished).
//   - The marks of a refused message outlive its dead letter. Otherwise a lost ack let it reach its handler again
//     (TestAckOfRefusedIsLost).
//   - Config.Delivered needs no database and no statement. It is all that a service on RabbitMQ without a database has.
//
// # What it does not do
//
//   - It compares no clocks. A process has stopped if its heartbeats have not changed for three intervals of its own
//     and three of the process that looks. A process that is suspended for longer, or has no connection to the
//     database, is taken for dead. Its marks count until it sends a heartbeat or removes them.
//   - A new process marks until each of the others has sent two heartbeats: it cannot distinguish them from the remains
//     of a crash.
//   - It never stops a consumer. While the database fails, messages are handled unmarked, and only the heartbeats ask
//     it. The first messages that meet a silent database wait for it, 5 seconds. An outage lasts 10 seconds at least,
//     and is one line in the log when it begins and one when it ends. Only a router that starts with the plugin needs
//     the database, so that a deadly message ends each process at most once during an outage.
//   - It distinguishes messages by id, without an id by Config.Key, and without both by content. If a broker gives a
//     message a new id with each delivery, set Config.Key. If only its content names a message, processes that may
//     still live are not waited for and do not count, and marks of a refused one go with its dead letter. So a deadly
//     one may end some processes more. Each process counts once. A message that is handled twice at the same time in
//     one process has one mark.
//   - It remembers at most 1,024 marks that it could not remove because the database was unavailable. The first that is
//     forgotten is logged. A forgotten mark counts until the message is handled to the end again, or for 30 days. The
//     limit follows at most 1,024 messages whose outputs are being published.
//   - A panic outside of a router and of middleware.Recover does not count. It runs the deferred removal of the mark
//     before it ends the process. Routers recover panics. A panic in a goroutine that the handler started removes
//     nothing, and counts.
//
// # The broker's own count
//
// If the broker counts deliveries, Config.Delivered serves beside a store or alone, as wmamqp.DeliveryCount does on
// quorum queues. Brokers cannot distinguish a consumer that died from one that nacked, was closed or lost its
// connection. So the default of Max is 20 for their count, and 3 for the store's. A Max that you set is for both: let
// it be generous.
package crashlimit
