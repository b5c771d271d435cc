package logging

// A message fails.
var (
	// each: nothing
	HandlerRetried = event(isInfo, "handler_retried", "The handler failed and is called again",
		Topic, Handler, Class, Attempt, Wait, MessageID)
	// each: nothing
	HandlerDelayed = event(isInfo, "handler_delayed", "The handler failed; the message waits for its next attempt",
		Topic, Handler, Class, Stage, StageTopic, Attempt, Wait, MessageID)
	// each: Ask for less, or add a longer stage.
	WaitTooLong = event(isInfo, "wait_too_long",
		"An error asks for a longer wait than any stage allows; its message is "+
			"dead-lettered", Topic, Handler, MessageID, "retry_after", "max_delay")
	// each: Look why so many messages fail.
	BudgetSpent = event(isInfo, "budget_spent", "The retry budget is spent; messages go to their next stage, or wait",
		Handler, Traffic, To)
	// each: Repair the cause, and redrive: docs/incidents.md.
	DeadLettered = event(isError, "dead_lettered", "Message dead-lettered",
		Topic, Handler, Class, Reason, DeadLetterTopic, Attempt, MessageID)
	// each: nothing
	Discarded = event(isInfo, "discarded", "Message discarded, because its error is marked so",
		Topic, Handler, Class, Reason, DeadLetterTopic, Attempt, MessageID)
	// each: Repair the publisher; the message comes again.
	Unplaced = event(isError, "unplaced", "All publishers refused the dead letter; the message is nacked",
		Topic, Handler, Class, Reason, DeadLetterTopic, Attempt, MessageID, Failure)
	// each: See `unplaced` or `letter_raw`, if one follows.
	LetterRefused = event(isError, "letter_refused", "A dead letter was refused",
		DeadLetterTopic, Attempt)
	// each: See to the KMS or keys: docs/sealing.md.
	LetterNotSealed = event(isError, "letter_not_sealed", "A dead letter cannot be sealed; nothing is published, and "+
		"its message is held or nacked", Topic, Attempt)
	// each: nothing
	LetterPublisherAway = event(isDebug, "letter_publisher_away", "The publisher of dead letters is unavailable",
		DeadLetterTopic, Attempt)
	// each: Look why it was refused; raw letters can be redriven.
	LetterRaw = event(isError, "letter_raw",
		"The dead letter was refused for its content; it is published in its raw form", Topic, Handler, Class, Reason,
		DeadLetterTopic, Attempt, MessageID, "form")
	// each: Give `QueueConfig.Fallbacks` a larger sink.
	LetterPlain = event(isError, "letter_plain", "No dead letter fits beside its message; the message is published as "+
		"it came, and its story is in this log alone. For letters of such messages give QueueConfig.Fallbacks a sink that "+
		"takes larger ones",
		Topic, Handler, Class, Reason, DeadLetterTopic, Attempt, MessageID, "form").always()
	// once: Put the queue outside of the receiver, once.
	QueueMisplaced = event(isError, "queue_misplaced", "The queue stands inside an idempotent receiver, or is "+
		"attached twice; it passes errors on")
	// once: Create the topic.
	LetterTopicMissing = event(isError, "letter_topic_missing",
		"The dead-letter topic may be missing; its first letter "+
			"is published anyway", DeadLetterTopic)
	// once: Create the topics.
	NoInitializer = event(isInfo, "no_initializer", "The publisher can neither make topics nor look for them, so a "+
		"missing topic shows with its first message: create the topics, and give poison.WithInitializer(publisher, "+
		"poison.TopicsExist)",
		"of", "publisher", "topics")
	// each: Look why; after bounded tries the source is dead-lettered.
	OutputRefused = event(isError, "output_refused", "A produced message was refused",
		Topic, Handler)
	// once: Attach the channel before other decorators.
	OutputsUnprotected = event(isInfo, "outputs_unprotected", "Messages of a handler without Outputs.Middleware are "+
		"published unprotected", Handler)
)

// Other modules.
var (
	// once: Upgrade Spillway, or keep the module's older version.
	ForeignUnknown = event(isInfo, "foreign_unknown", "Something of another module is not as the library knows it, so "+
		"a check or a bound that depends on it may be missing", "of", "unknown")
)

// Functions of yours.
var (
	// each: Repair the hook.
	HookPanicked = event(isError, "hook_panicked", "A hook panicked; the message goes on without it", Hook, Consumer,
		Key)
	// each: Repair the mask.
	MaskPanicked = event(isError, "mask_panicked", "A mask panicked; the value is withheld", Config)
	// each: Repair the rule.
	RulePanicked = event(isError, "rule_panicked", "A classification rule failed; it has no say")
	// each: Repair the function.
	OriginPanicked = event(isError, "origin_panicked", "QueueConfig.Origin panicked; the letter has the origin that "+
		"the router knows")
	// each: Repair the function.
	ReentryPanicked = event(isError, "reentry_panicked", "ReentryTopic panicked; the letter goes to its origin topic",
		Topic, Handler, DeadLetterTopic, Campaign, MessageID, "redrive_count")
)
