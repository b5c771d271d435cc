// Package redrive brings dead letters back, and keeps them until then.
//
// A dead letter comes back by hand, because somebody mended what it failed at, or by a handler that runs all the time.
// Either way it goes only to a topic that was allowed by name (whatever its own metadata say), no faster than asked
// for, and no more often than MaxRedrives. What is published is the message as it first arrived: payload, id and
// producer's metadata byte for byte, with its origin and the history of its attempts, without the failure, and with
// x-redrive-count, -at, -by and -id on record.
//
// # From the store
//
// Store keeps dead letters in a table of a SQLite, PostgreSQL, MySQL or MariaDB database. It is a message.Publisher, so a
// poison.Queue can publish straight into it, and Collect feeds it from dead-letter topics. List, Groups and Count show what
// is there, Take and Mark work on single letters, and Drain brings back all that a Filter chooses. A letter is in one of
// five states:
//
//	            ┌── came again ──┐
//	            ▼                │
//	stored ▶ waiting ──drain──▶ redriven     published to its topic
//	            ├─────drain──▶ quarantined   redriven MaxRedrives times already
//	            ├─────Mark───▶ refused       a person said so, for now
//	            └─────Mark───▶ discarded     a person said so
//
// A drain takes waiting letters whose topic is in its allow-list. Letters of other topics go on waiting, and the Report
// counts them by topic. Quarantined letters stay where they are: a later drain with a higher MaxRedrives takes them with
// Filter.Statuses. While a caller works on a letter it is leased, in whatever state it is; an expired lease is free for the
// next. Leases go by the database's clock. A letter that fails again after its redrive
// arrives as a letter of its own, with one redrive more. The same letter arriving again (same consumer, origin topic,
// id, redrive count, payload and producer's metadata) is one row that counts how often it was seen, and waits again if it was
// discarded or redriven. A letter without an id is never taken for
// another.
//
// Several services, or brokers, may have one table: StoreConfig.Service names whose letters a Store takes and brings back.
//
// Groups counts letters by cause: topics, handler, class, reason, type, stack, and the description without its numbers, ids
// and quoted texts. A Group becomes a Filter.
//
// A letter larger than the database takes is refused with poison.ErrTooLarge. On MySQL and MariaDB a letter may have
// max_allowed_packet less 8 KiB, all that the queue adds included. So a message of at most max_allowed_packet less 64 KiB
// can always be set aside there. Larger ones, of a broker that takes them, need a higher max_allowed_packet, or a fallback
// of the queue. SQLite and PostgreSQL take 1 GB.
//
// # From a topic
//
// Handler does the same on a router: each message of a dead-letter topic is brought back, or published unchanged to
// <topic>.parked, or, over the limit, to <topic>.quarantine. It is acked only then. Both topics exist before the first
// letter: the handler's start creates them where the broker allows, or is an error. A letter rests for MinWait, 10 s by
// default, after its latest failure, so that one which fails at once does not spend its redrives within a millisecond.
// Drain is the same once, without a router and without that rest, and ends at what was there when it started.
//
// # At the first stage
//
// With Entry, for example the method ReentryTopic of stages.Stages, letters of a handler with retry stages come back at the first of them
// in place of the origin topic: the same handler gets them, at once and apart from live traffic, and one that fails again has
// all stages before it. What the allow-list must hold is the origin topic all the same.
//
// # What is not promised
//
// Order: letters are published in the order of the store when Concurrency is 1, but a letter whose publish failed comes
// after the others, and what the consumer handled meanwhile was first anyway. Once: a process that ends between publish
// and mark, or between publish and ack, publishes that letter again, with the same id, and the receiver of package
// idempotency absorbs it. Never is a letter marked, or acked, before its publisher took it.
package redrive
