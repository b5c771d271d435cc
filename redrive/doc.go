// Package redrive publishes dead letters again, to the topics that they came from.
//
// A dead letter is a message that a handler gave up on. After its cause is repaired, the message can be handled. A
// redrive publishes it as it first arrived, with the same payload, id and producer's metadata, byte for byte. The
// origin and the history of its attempts stay with it. The failure does not. The keys x-redrive-count, -at, -by and -id
// record the redrive.
//
// There are three ways to redrive letters:
//
//	redrive.Drain       the letters in a store that a Filter chooses, once
//	redrive.DrainTopic  the letters in a dead-letter topic, once
//	redrive.NewHandler  the letters in dead-letter topics, as they arrive, on a router
//
// The store is package letters: a table of letters that shows, counts and groups them.
//
//	report, err := redrive.Drain(ctx, store, live, redrive.DrainConfig{
//		Rules: redrive.Rules{Allow: []string{"orders"}, Rate: 100, By: "ann"},
//	})
//
// # Rules
//
// All three follow the same Rules:
//   - A letter goes only to a topic that Allow lists, whatever the letter's own metadata say.
//   - The publisher is called at most Rate times a second.
//   - A letter that failed again after MaxRedrives redrives is quarantined: it comes back no more.
//   - A letter is marked or acked only after its publisher confirmed it.
//
// Rate bounds how fast letters come back. If a message fails again, the handler's Retry tries it again. A
// middleware.Budget bounds these attempts. Redriven messages have a budget of their own, so that a large redrive takes
// no retries from live messages.
//
// # From a store
//
// Drain takes the letters that wait when it starts, publishes them, and marks those that the publisher took. Letters of
// topics that are not allowed go on waiting, and the Report counts them by topic. Quarantined letters stay in the
// store; a later drain takes them with a higher MaxRedrives and with Filter.Statuses. Letters in hand are leased, so
// that several drains can run at the same time, also in several processes.
//
// # From a topic
//
// A Handler publishes each letter to its topic, or unchanged to <dead-letter topic>.parked if the Rules do not allow
// that. After MaxRedrives it publishes the letter to <dead-letter topic>.quarantine. Then it acks. The handler's start
// creates both topics, or fails. A letter rests for MinWait, 10 s by default, after its latest failure, so that it does
// not use up its redrives at once.
//
// DrainTopic does the same once, without a router and without MinWait. It ends at the backlog that was there when it
// started. Its dry run is redrive drain --dry-run.
//
// # At a retry stage
//
// Letters enter at their origin topic, where all its handlers read them. With Rules.ReentryTopic, such as the method of
// stages.Stages, a letter of a handler with retry stages enters at the first stage. Only that handler gets it, apart
// from live traffic, and if it fails again it has all stages before it.
//
// # What is not promised
//
// Order: with a Concurrency of 1 letters are published in their order. A letter whose publish failed comes after the
// others.
//
// Once: if the process ends between publish and mark, or between publish and ack, the letter is published again with
// the same id. The receiver of package idempotency absorbs it.
package redrive
