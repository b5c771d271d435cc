package logging

// A message fails.
var (
	// each: nothing
	HandlerRetried = event(isInfo, "handler_retried", "The handler failed and is called again")
	// each: nothing
	HandlerDelayed = event(isInfo, "handler_delayed", "The handler failed; the message waits for its next attempt")
	// each: Ask for less, or add a longer stage.
	WaitTooLong = event(isInfo, "wait_too_long",
		"An error asks for a longer wait than any stage allows; its message is dead-lettered")
	// each: Look why so many messages fail.
	BudgetSpent = event(isInfo, "budget_spent", "The retry budget is spent; messages go to their next stage, or wait")
	// each: Repair the cause, and redrive: docs/incidents.md.
	DeadLettered = event(isError, "dead_lettered", "Message dead-lettered")
	// each: nothing
	Discarded = event(isInfo, "discarded", "Message discarded, because its error is marked so")
	// each: Repair the publisher; the message comes again.
	Unplaced = event(isError, "unplaced", "All publishers refused the dead letter; the message is nacked")
	// each: See `unplaced` or `letter_raw`, if one follows.
	LetterRefused = event(isError, "letter_refused", "A dead letter was refused")
	// each: See to the KMS or keys: docs/sealing.md.
	LetterNotSealed = event(isError, "letter_not_sealed",
		"A dead letter cannot be sealed; nothing is published, and its message is held or nacked")
	// each: nothing
	LetterPublisherUnavailable = event(isDebug, "letter_publisher_unavailable",
		"The publisher of dead letters is unavailable")
	// each: Look why it was refused; raw letters can be redriven.
	LetterRaw = event(isError, "letter_raw",
		"The dead letter was refused for its content; it is published in its raw form")
	// each: Give `QueueConfig.Fallbacks` a larger sink.
	LetterPlain = event(isError, "letter_plain",
		"No dead letter fits beside its message; the message is published as it came, and its story is in this log "+
			"alone. For letters of such messages give QueueConfig.Fallbacks a sink that takes larger ones").always()
	// once: Put the queue outside of the receiver, once.
	QueueMisplaced = event(isError, "queue_misplaced",
		"The queue stands inside an idempotent receiver, or is attached twice; it passes errors on")
	// once: Create the topic.
	LetterTopicMissing = event(isError, "letter_topic_missing",
		"The dead-letter topic may be missing; its first letter is published anyway")
	// once: Create the topics.
	NoInitializer = event(isInfo, "no_initializer",
		"The publisher can neither make topics nor look for them, so a missing topic shows with its first message: "+
			"create the topics, and give poison.WithInitializer(publisher, poison.TopicsExist)")
	// each: Look why; after bounded tries the source is dead-lettered.
	OutputRefused = event(isError, "output_refused", "A produced message was refused")
	// once: Attach the channel before other decorators.
	OutputsUnprotected = event(isInfo, "outputs_unprotected",
		"Messages of a handler without Outputs.Middleware are published unprotected")
)

// Other modules.
var (
	// once: Upgrade Spillway, or keep the module's older version.
	ForeignUnknown = event(isInfo, "foreign_unknown",
		"Something of another module is not as the library knows it, so a check or a bound that depends on it may be "+
			"missing")
)

// Functions of yours.
var (
	// each: Repair the hook.
	HookPanicked = event(isError, "hook_panicked", "A hook panicked; the message goes on without it")
	// each: Repair the mask.
	MaskPanicked = event(isError, "mask_panicked", "A mask panicked; the value is withheld")
	// each: Repair the rule.
	RulePanicked = event(isError, "rule_panicked", "A classification rule failed; it has no say")
	// each: Repair the function.
	OriginPanicked = event(isError, "origin_panicked",
		"QueueConfig.Origin panicked; the letter has the origin that the router knows")
	// each: Repair the function.
	ReentryPanicked = event(isError, "reentry_panicked", "ReentryTopic panicked; the letter goes to its origin topic")
)

// Outages, and the breaker.
var (
	// outage: Repair the store or publisher.
	OutageBegan = event(isError, "outage_began",
		"An outage began; messages are held, and requeued uncounted, until it is over")
	// outage: nothing
	OutageEnded = event(isInfo, "outage_ended", "The outage is over")
	// once: Give the subscriber a `RedeliveryTime`, or hold for less.
	HeldCopy = event(isError, "held_copy",
		"A broker delivered a message again that is held here; it is not handled twice here, and messages of this "+
			"subscriber are held for less from now on")
	// start: Set the field to half of the redelivery time.
	HoldCut = event(isError, "hold_cut",
		"A configured hold is too long for the broker of a topic; its messages are held for less")
	// outage: Repair what the handler calls: docs/breaker.md.
	BreakerOpened = event(isError, "breaker_opened",
		"The breaker opened: messages are held, uncounted, until a probe succeeds")
	// each: nothing
	BreakerReopened = event(isInfo, "breaker_reopened",
		"The breaker opened again in the ramp: messages are held, uncounted, until a probe succeeds")
	// each: Close it when the work is done.
	BreakerFrozen = event(isInfo, "breaker_frozen",
		"The breaker is open by hand: messages are held, uncounted, until it is closed by hand")
	// outage: nothing
	BreakerClosed = event(isInfo, "breaker_closed", "The breaker closed: messages pass again")
	// each: nothing
	BreakerChanged = event(isDebug, "breaker_changed", "The breaker has another state")
	// outage: Read docs/breaker.md#one-message-alone.
	BreakerHeldByOne = event(isError, "breaker_held_by_one",
		"One message alone keeps the breaker open, and has no stage to go to: it is held. If the message is at "+
			"fault, let its error be permanent (classify.Permanent), or give the handler stages")
	// once: Read docs/breaker.md#errors-that-do-not-say-unavailable.
	BreakerGaveUp = event(isError, "breaker_gave_up",
		"The breaker holds no more messages for an error of unknown meaning: they go on as without a breaker. If the "+
			"error says that something is unavailable, mark it with classify.Unavailable; if the message is at fault, "+
			"with classify.Permanent")
	// stop: nothing; the entries expire
	BreakerNotCleared = event(isError, "breaker_not_cleared",
		"The store of outages does not answer; outages of this instance count until they expire")
	// outage: Repair the database.
	BreakerStoreUnavailable = event(isError, "breaker_store_unavailable",
		"The store of outages does not answer; each instance decides for itself until it does")
	// outage: nothing
	BreakerStoreBack = event(isInfo, "breaker_store_back", "The store of outages answers again")
)

// The crash limit.
var (
	// outage: Repair the database.
	CrashStoreUnavailable = event(isError, "crash_store_unavailable",
		"The store of the crash limit fails; until it answers, crashes go undetected and messages are handled unmarked")
	// outage: nothing
	CrashStoreBack = event(isInfo, "crash_store_back", "The store of the crash limit answers again")
	// each: nothing
	CrashLetterPlaced = event(isInfo, "crash_letter_placed",
		"A message that was dead-lettered because it ended processes came again: it is acked, and has one dead letter")
	// each: Repair the database, if it goes on.
	CrashMarksKept = event(isInfo, "crash_marks_kept",
		"Old marks of the crash limit cannot be removed; this is tried again")
	// outage: Repair the database; a message may be dead-lettered early.
	CrashMarkLost = event(isError, "crash_mark_lost",
		"A mark that is to be removed is forgotten, and more may be; it counts until its message is handled again, "+
			"or for 30 days")
	// stop: Nothing, if you cut handlers off.
	CrashMessagesUnsigned = event(isError, "crash_messages_unsigned",
		"Messages that are still being handled are not signed off; they count as if this process had died")
	// stop: Repair the database.
	CrashProcessUnsigned = event(isError, "crash_process_unsigned",
		"This process is not signed off; other processes will take its end for a crash")
	// start: nothing
	CrashPeers = event(isInfo, "crash_peers",
		"Other processes have not signed off; deliveries are marked until each has sent two heartbeats")
	// each: Look why the process ended: docs/crashes.md.
	CrashDetected = event(isInfo, "crash_detected", "A process crashed; deliveries are marked")
	// once: nothing
	CrashQuiet = event(isInfo, "crash_quiet", "No process crashed since; deliveries are no longer marked")
)

// Stages and the delay store.
var (
	// each: Repair the database. The partition waits.
	SequencesUnavailable = event(isError, "sequences_unavailable",
		"Parked messages cannot be read or written; their partition waits")
	// each: Add the channel with Attach, before what copies messages.
	OrderUnknown = event(isError, "order_unknown",
		"A message of an ordered handler has no place in an order; it is requeued")
	// start: Set `Config.Ordered` until the messages are gone.
	ParkedLeft = event(isError, "parked_left",
		"Messages wait in the order of their key, and this channel has no Ordered: later messages of their keys "+
			"overtake them. Set Config.Ordered until they are gone, or check that another instance has it")
	// each: nothing
	MessageParked = event(isInfo, "message_parked",
		"The handler failed; the message waits, and those of its key behind it")
	// each: Release, skip or discard the message: `redrive sequences`.
	SequenceHeld = event(isError, "sequence_held", "A message failed for good; its key stands until a person decides")
	// each: Repair what the handler needs. `redrive sequences` names the keys.
	SequencesFull = event(isError, "sequences_full",
		"As many messages are parked as may be; their partition waits for room")
	// each: nothing
	SequencesHaveRoom = event(isInfo, "sequences_have_room",
		"There is room for parked messages again; their partition goes on")
	// each: Look at the letter: its message took effect.
	SettledApplied = event(isInfo, "settled_applied",
		"A message that was dead-lettered has had its effect before, by a process that was stopped")
	// each: Look why the stage refuses it.
	StageCondemned = event(isError, "stage_condemned", "A message cannot go into its stage; it is dead-lettered")
	// each: Repair the stage topic.
	StageRefused = event(isError, "stage_refused", "The stage did not take the message; it is requeued")
	// start: Add the handlers with `Stages.AddHandler`, or leave the stages out.
	StagesUnused = event(isError, "stages_unused",
		"There are retry stages, and no handler has them: a message that fails is dead-lettered after its attempts. "+
			"Add handlers with Stages.AddHandler or AddConsumerHandler, or leave the stages out")
	// start: Add the handler, or list the delay as `Retired`.
	StageAbandoned = event(isError, "stage_abandoned",
		"Messages wait in a stage topic that no handler of this process consumes: add their handler, list a removed "+
			"delay as Retired, or check that another service consumes it")
	// start: Give one instance with these handlers a `Stages.Store` in `DB` until the messages are gone.
	StageRowsLeft = event(isError, "stage_rows_left",
		"Messages wait in the delay store of DB, which this channel does not read: give Config.Stages a Store in DB "+
			"until they were published, or check that another instance does")
	// start: Read the error; messages may wait in a removed stage.
	StageSearchFailed = event(isError, "stage_search_failed", "The search for messages in removed stages failed")
	// each: nothing
	StageRemoved = event(isInfo, "stage_removed",
		"A message waits in a stage that was removed; it goes on in the nearest stage")
	// start: Set `stages.Config.Store`.
	StageInTransaction = event(isError, "stage_in_transaction",
		"The subscriber of a stage topic holds a transaction open for each waiting message; messages go round every "+
			"second and come late")
	// start: Set `stages.Config.Store`, or a longer ack deadline.
	StageDeadline = event(isError, "stage_deadline",
		"A stage is longer than its subscriber's ack deadline; messages go round, come late, and hold a transaction "+
			"while they wait")
	// each: Repair the stage topic.
	StageRoundRefused = event(isError, "stage_round_refused",
		"A message that goes round was not taken by its stage topic again; it is requeued")
	// start: nothing
	StageRounds = event(isInfo, "stage_rounds",
		"A stage is longer than its messages can be held; they are published to their stage topic again")
	// once: Restart the process; look what the broker did.
	SubscriptionEnded = event(isError, "subscription_ended",
		"A subscription ended by itself; its handler and the handler's stages get no more messages")
	// stop: Read the error; a connection may be left.
	StageNotClosed = event(isError, "stage_not_closed", "The subscriber of a stage topic cannot be closed")
	// once: Attach the channel to the router.
	StageUnprotected = event(isError, "stage_unprotected",
		"A handler with stages runs without Stages.Middleware, so its messages do not wait in stages: Attach the "+
			"channel to its router, or add the middleware with AddMiddleware of what AddHandler returned")
	// each: Make the lease longer, if it goes on.
	DelayLeaseLost = event(isInfo, "delay_lease_lost",
		"A relay of the delay store lost a lease; the rest of the batch is left to other relays")
	// each: Repair the topic, or its publisher.
	DelayRefused = event(isError, "delay_refused",
		"Messages out of the delay store are not published; they are tried again later")
	// each: nothing, unless it goes on
	DelayUnsettled = event(isInfo, "delay_unsettled",
		"A relay of the delay store cannot write down what became of messages; other relays take them when the lease "+
			"is over")
	// outage: Repair the database.
	DelayStoreUnavailable = event(isError, "delay_store_unavailable",
		"The delay store fails; messages wait until it answers")
	// outage: nothing
	DelayStoreBack = event(isInfo, "delay_store_back", "The delay store answers again")
)
