// Package letters keeps dead letters in a table, so that people and programs can look at them and redrive them.
//
// A Store works on SQLite, PostgreSQL, MySQL and MariaDB, and creates its table itself:
//
//	store, err := letters.NewStore(ctx, db, letters.Config{Service: "shop"})
//
// Letters come into a Store in two ways. It is a message.Publisher, so that a poison.Queue publishes into it directly.
// Or Collect adds handlers to a router that move letters from dead-letter topics into it.
//
// # What is there
//
// Heads lists letters without their metadata and payloads, List with them, and Get returns one. Count counts letters,
// and Groups counts them by cause. A Filter chooses which. A cause is what failed, where
// and how: the topics, handler, class, reason, error type and stack. The description belongs to it too, without its
// numbers, ids, addresses and quoted texts. A Group becomes a Filter.
//
// # The states of a letter
//
//	            ┌── came again ──┐
//	            ▼                │
//	stored ▶ waiting ──drain──▶ redriven ──▶ succeeded, or failed_again
//	            ├─────drain──▶ quarantined   redriven MaxRedrives times already
//	            ├───MarkAll──▶ refused       a person said so, for now
//	            └───MarkAll──▶ discarded     a person said so
//
// A campaign looks for what became of redriven letters. MarkAll changes many letters, and Purge deletes them. A
// Retention deletes old letters by itself.
//
// Each change is an Event, written in the same transaction: who made it, when and why. History and Audit return events.
// The Store never changes or deletes one. The record of an arrival is the letter's own row, and becomes an event with
// Purge.
//
// The same letter that arrives again is one row that counts how often it was seen. It waits again if it was redriven or
// discarded. Two letters are the same if all of these are: service, consumer, origin topic, id, redrive count, payload
// and the producer's metadata. A letter without an id is never the same as another. A letter that fails again after its
// redrive has a higher redrive count, and so is a row of its own.
//
// # Working on letters
//
// Drains and campaigns lease the letters that they work on: package redrive and package campaigns. No other drain takes
// a letter before its lease ends. Leases go by the database's clock, so that they hold between machines. A process that
// crashes holds its letters until the lease expires. Heads with Filter.Leased shows them.
//
// # Many letters
//
// The numbers of each cause are kept in the transaction of each letter, in the table spillway_letter_counts, and so are
// read instead of counted. Once an hour they are compared with the letters, because rows may be deleted by hand, or
// restored in part. So are the arrivals of the last hour kept, by the minute. On PostgreSQL one statement stores a
// letter, its body and its numbers. A Filter by what the letters of a cause have in common becomes one by causes. All
// other scans read windows of Seq, one statement each, and end with their context. Metadata and payloads are in the
// table spillway_letter_bodies, which lists do not read.
//
// # Several services
//
// Services can share one table. The Service of NewStore names the service, and a Store works only with letters that a
// Store of the same Service stored. After a service is renamed, its letters stay under the old name, until these
// statements run while no program of either name does. The store then counts the letters under the new name:
//
//	UPDATE spillway_dead_letters SET service = 'new' WHERE service = 'old';
//	DELETE FROM spillway_letter_counts WHERE service IN ('old', 'new');
//	UPDATE spillway_letter_events SET service = 'new' WHERE service = 'old';
//
// On SQLite write CAST('new' AS BLOB) and CAST('old' AS BLOB): a text is not equal to bytes there, and the statements
// change nothing.
//
// # Sizes
//
// A letter that is larger than the database takes is refused with classify.ErrTooLarge. On MySQL and MariaDB a letter
// may have max_allowed_packet less 8 KiB, including all that a poison.Queue adds. So a message of at most
// max_allowed_packet less 64 KiB can always be stored. For larger messages raise max_allowed_packet, or give the queue
// a fallback. SQLite and PostgreSQL take 1 GB. A List, or a batch of a drain, reads at most 32 MiB into memory.
package letters
