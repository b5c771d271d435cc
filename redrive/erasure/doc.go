// Package erasure erases a person's data from all that Spillway keeps in databases: dead letters, messages that wait in
// a delay store, keys of the receiver, and what campaigns say.
//
//	report, err := erasure.Erase(ctx, erasure.Stores{Letters: store, Delayed: delayed, Keys: keys, Campaigns: all}, erasure.Request{
//		Metadata: map[string]string{"customer": "4711"},
//		Act:      campaigns.Act{By: "ann", Reason: "request 17 of the data protection officer"},
//	})
//
// A person's data are found by the ids of messages, or by their metadata. With Request.DryRun nothing is changed, and
// the Report says what would be.
//
// # What becomes of what
//
//	letter             its payload, metadata, description, stack and history are gone, whatever its state; the row and its record stay
//	message that waits it is removed, and published to no topic any more
//	key                it stays, so that the message is absorbed if it comes again; its recorded outputs and its fingerprint are gone
//	campaign           values of the person are replaced in filters, edits and reasons; texts about the erased letters are gone
//
// A letter under a lease, a message that a relay is publishing, a key that a handler has leased and a campaign that has
// not ended with the value in its edit are left alone: the Report counts them, and the error is ErrInHand. Run it again
// later.
//
// # What metadata do not find
//
// A message that succeeded has no letter, and its key keeps its recorded outputs. Such a key is found by the id of its
// message alone. Of a sealed letter, only metadata that stay readable are searched. A Report counts both:
// Report.KeysUnsearched and Report.SealedUnsearched. Erase by ids what they hide.
//
// # On record
//
// The letters' record has two events of the kind erasure, at the beginning and at the end, and an event of each erased
// letter: who erased it, when and why. No event has the value: Report.Selector is a hash of what was looked for.
//
// # If it is killed
//
// Erase works in transactions of at most 200 letters or 500 messages. What belongs to a letter goes before the letter
// does. So a second run finds what the first has not done. A run that does nothing is no error.
//
// # What is not reached
//
// Messages in topics of a broker, and in tables of watermill-sql; backups; old versions of rows that the database keeps
// until it is vacuumed. See docs/privacy.md.
package erasure
