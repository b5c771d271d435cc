// Package notify sends notices to people: the first dead letter of a new cause is in the team's chat within seconds,
// and a storm of them is one notice.
//
//	hook, err := webhook.New(webhook.Config{URL: os.Getenv("SLACK_URL"), Body: webhook.Slack})
//	...
//	notifier, err := notify.New(notify.Config{Sinks: []notify.Sink{hook}})
//	...
//	config.Observers = []spillway.Observer{notifier}
//	...
//	dlc, err := spillway.New(ctx, config)
//	...
//	err = notifier.Watch(ctx, dlc)
//	...
//	router.AddPlugin(notifier.Plugin) // sends while the router runs
//
// # What is sent
//
// A cause is what failed, where and how, as package letters says. The first letter of a cause is a notice at once.
// Further letters of the cause are counted, and one notice has their number after an hour. A cause without a
// letter for a whole hour is new again. A cause that persons snoozed makes no notice, until it grows.
//
// States are the other half: an open breaker, a store that is unavailable, letters that wait for too long or are too
// many, a campaign that stopped itself. A state is a notice when it begins, and one when it was over for a minute. If
// it comes back before, it goes on.
//
// If more than 10 causes are new within a minute, the others are counted too: that is one notice of kind
// ManyNotices, and one with their number.
//
// # Several instances
//
// Instances that share a database agree in the table spillway_notices. One of them sends, the others count. The one
// that sends has a lease. If it dies before it has sent, another instance sends the notice when the lease has ended,
// after about half a minute. That happens once at most, so a notice can come twice, with the same Notice.ID. Without a
// database each process sends notices of its own.
//
// While that database is unavailable, causes are counted, and sent when it is back. Each process says that the database
// is away.
//
// # What it costs
//
// A hook adds to a number under a lock. It never waits for a database or for a Sink, and no Sink can fail a message.
// What is kept in memory is bounded: 1,000 subjects between two rounds of a second, and 100 notices for
// each Sink. What is dropped is counted, and the next notice has the number.
//
// A hook is called when the letter was placed. If it was written in the transaction of its message, and that is rolled
// back, the notice speaks of a letter that comes again.
//
// # Sinks
//
// A Sink is a function. Package webhook sends requests. Each Sink has a goroutine of its own,
// which runs while the router runs: a Sink that hangs keeps no other from its notices. A Sink that fails, or panics, is
// called again after 1 s, then 2 s, and so on up to a minute, until an hour has gone by.
package notify
