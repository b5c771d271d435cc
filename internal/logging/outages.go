package logging

// Outages, and the breaker.
var (
	// outage: Repair the store or publisher.
	OutageBegan = event(isError, "outage_began",
		"An outage began; messages are held, and requeued uncounted, until it is over", Store, Since)
	// outage: nothing
	OutageEnded = event(isInfo, "outage_ended", "The outage is over",
		Store, "lasted", "held", "given_back")
	// once: Give the subscriber a `RedeliveryTime`, or hold for less.
	HeldCopy = event(isError, "held_copy", "A broker delivered a message again that is held here; it is not handled "+
		"twice here, and messages of this subscriber are held for less from now on",
		Topic, Handler, StageTopic, MessageID, After, Held)
	// start: Set the field to half of the redelivery time.
	HoldCut = event(isError, "hold_cut", "A configured hold is too long for the broker of a topic; its messages are "+
		"held for less", Config, Topic, "max_hold", Held, "redelivery_time")
	// outage: Repair what the handler calls: docs/breaker.md.
	BreakerOpened = event(isError, "breaker_opened",
		"The breaker opened: messages are held, uncounted, until a probe succeeds", Handler, State, Reason, "scope",
		"actor", "waiting", "lasted")
	// each: nothing
	BreakerReopened = event(isInfo, "breaker_reopened", "The breaker opened again in the ramp: messages are held, "+
		"uncounted, until a probe succeeds", Handler, State, Reason, "scope", "actor", "waiting", "lasted")
	// each: Close it when the work is done.
	BreakerFrozen = event(isInfo, "breaker_frozen", "The breaker is open by hand: messages are held, uncounted, until "+
		"it is closed by hand", Handler, State, Reason, "scope", "actor", "waiting", "lasted")
	// outage: nothing
	BreakerClosed = event(isInfo, "breaker_closed", "The breaker closed: messages pass again",
		Handler, State, Reason, "scope", "actor", "waiting", "lasted")
	// each: nothing
	BreakerChanged = event(isDebug, "breaker_changed", "The breaker has another state",
		Handler, State, Reason, "scope", "actor", "waiting", "lasted")
	// outage: Read docs/breaker.md#one-message-alone.
	BreakerHeldByOne = event(isError, "breaker_held_by_one", "One message alone keeps the breaker open, and has no "+
		"stage to go to: it is held. If the message is at fault, let its error be permanent (classify.Permanent), or give "+
		"the handler stages",
		Topic, Handler, MessageID)
	// once: Read docs/breaker.md#errors-that-do-not-say-away.
	BreakerGaveUp = event(isError, "breaker_gave_up", "The breaker holds no more messages for an error of unknown "+
		"meaning: they go on as without a breaker. If the error says that something is away, mark it with classify.Away; if "+
		"the message is at fault, with classify.Permanent",
		Handler, Class, "scope")
	// stop: nothing; the entries expire
	BreakerNotCleared = event(isError, "breaker_not_cleared", "The store of outages does not answer; outages of this "+
		"instance count until they expire")
	// outage: Repair the database.
	BreakerStoreAway = event(isError, "breaker_store_away", "The store of outages does not answer; each instance "+
		"decides for itself until it does")
	// outage: nothing
	BreakerStoreBack = event(isInfo, "breaker_store_back", "The store of outages answers again")
)

// The crash limit.
var (
	// outage: Repair the database.
	CrashStoreAway = event(isError, "crash_store_away",
		"The store of the crash limit fails; until it answers, crashes "+
			"go undetected and messages are handled unmarked")
	// outage: nothing
	CrashStoreBack = event(isInfo, "crash_store_back", "The store of the crash limit answers again", After, "unmarked")
	// each: nothing
	CrashLetterPlaced = event(isInfo, "crash_letter_placed", "A message that was dead-lettered because it ended "+
		"processes came again: it is acked, and has one dead letter", Handler, Key)
	// each: Repair the database, if it goes on.
	CrashMarksKept = event(isInfo, "crash_marks_kept",
		"Old marks of the crash limit cannot be removed; this is tried again")
	// outage: Repair the database; a message may be dead-lettered early.
	CrashMarkLost = event(isError, "crash_mark_lost", "A mark that is to be removed is forgotten, and more may be; it "+
		"counts until its message is handled again, or for 30 days", Handler, Key)
	// stop: Nothing, if you cut handlers off.
	CrashMessagesUnsigned = event(isError, "crash_messages_unsigned", "Messages that are still being handled are not "+
		"signed off; they count as if this process had died")
	// stop: Repair the database.
	CrashProcessUnsigned = event(isError, "crash_process_unsigned", "This process is not signed off; other processes "+
		"will take its end for a crash")
	// start: nothing
	CrashPeers = event(isInfo, "crash_peers", "Other processes have not signed off; deliveries are marked "+
		"until each has sent two heartbeats")
	// each: Look why the process ended: docs/crashes.md.
	CrashDetected = event(isInfo, "crash_detected", "A process crashed; deliveries are marked", "for")
	// once: nothing
	CrashQuiet = event(isInfo, "crash_quiet", "No process crashed since; deliveries are no longer marked")
)
