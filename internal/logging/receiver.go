package logging

// The receiver, and the purge of keys.
var (
	// each: nothing
	DuplicateAbsorbed = event(isDebug, "duplicate_absorbed", "The receiver absorbed a duplicate", Consumer, Key)
	// each: nothing
	SettledAbsorbed = event(isDebug, "settled_absorbed",
		"The receiver absorbed a message that ended without an effect "+
			"before", Consumer, Key)
	// each: nothing
	VersionSkipped = event(isDebug, "version_skipped", "The receiver skipped a version: a later one was applied before",
		Consumer, Key, "version", "applied")
	// each: Repair the database.
	OutputsUnmarked = event(isError, "outputs_unmarked", "The receiver cannot mark outputs as published; a duplicate "+
		"publishes them again", Consumer, Key)
	// once: Give each handler its own receiver.
	ConsumerShared = event(isError, "consumer_shared", "Two handlers have the same Consumer: a message that both "+
		"receive is applied by one of them, and absorbed by the other. Give each handler a receiver of its own, or leave "+
		"ReceiverConfig.Consumer out",
		Consumer, "first", "second")
	// each: Look for effects that happened twice.
	AppliedUnrecorded = event(isError, "applied_unrecorded",
		"The receiver cannot record that a message was applied; it "+
			"is requeued, and its effects may happen again", Consumer, Key)
	// each: nothing
	LeaseNotRenewed = event(isDebug, "lease_not_renewed", "The receiver cannot renew a lease, and tries again",
		Consumer,
		Key)
	// each: nothing
	LeaseNotGivenUp = event(isInfo, "lease_not_given_up", "The receiver cannot give up the lease of a failed message; "+
		"it comes again when the lease has expired", Consumer, Key)
	// each: Look for double effects; make the lease longer than the handler.
	LeaseLost = event(isError, "lease_lost", "The receiver lost a lease while the handler was at work; its "+
		"effects may happen twice", Consumer, Key)
	// each: Settle the message before it is handled again.
	ClaimWaitsForOwn = event(isError, "claim_waits_for_own", "A claim waits for another claim of its own message",
		Consumer, Key)
	// each: nothing, unless it goes on
	ClaimNotReleased = event(isInfo, "claim_not_released", "The receiver cannot release the claim of a duplicate, or "+
		"of a failed message; the database ends it with its connection", Consumer, Key)
	// once: Raise `SetMaxOpenConns`, or handle fewer messages at once.
	PoolUsedUp = event(isError, "pool_used_up",
		"Messages wait for connections that other messages hold, perhaps for ever", "max_open_connections", "in_use",
		"claims", "waited")
	// start: Make `PurgeConfig.Retention` longer than the horizon.
	PurgeTooEarly = event(isError, "purge_too_early", "Keys are purged while their messages may still come again: a "+
		"message that is redriven or retried after its key was purged is applied again",
		"of", "retention", "horizon")
	// each: Repair the database, if it goes on.
	PurgeFailed = event(isError, "purge_failed", "A purge of keys failed; it is tried again when the next is due", "of",
		"keys")
	// each: nothing
	KeysPurged = event(isDebug, "keys_purged", "Purged keys", "of", "keys")
	// stop: Repair the database.
	PurgeHangs = event(isError, "purge_hangs",
		"A purge of keys did not end in time; the router stops without waiting for it", "of")
)
