package logging

import "github.com/ThreeDotsLabs/watermill"

// The levels of events. An operator must act on an Error line. What the service does by itself is an Info line, or a
// Debug line if it is part of its daily work. An outage is one Error line when it begins, and one Info line when it
// ends.
const (
	isError = watermill.ErrorLogLevel
	isInfo  = watermill.InfoLogLevel
	isDebug = watermill.DebugLogLevel
)

// What becomes of a message that fails.
var (
	HandlerRetried = event(isInfo, "handler_retried", "The handler failed and is called again",
		Topic, Handler, Class, Attempt, Wait, MessageID)
	HandlerDelayed = event(isInfo, "handler_delayed", "The handler failed; the message waits for its next attempt",
		Topic, Handler, Class, Stage, StageTopic, Attempt, Wait, MessageID)
	WaitTooLong = event(isInfo, "wait_too_long", "An error asks for a longer wait than MaxDelay; its message is "+
		"dead-lettered", Topic, Handler, MessageID, "retry_after", "max_delay")
	BudgetSpent = event(isInfo, "budget_spent", "The retry budget is spent; messages go to their next stage, or wait",
		Handler, Traffic, To)
	DeadLettered = event(isError, "dead_lettered", "Message dead-lettered",
		Topic, Handler, Class, Reason, DeadLetterTopic, Attempt, MessageID)
	Discarded = event(isInfo, "discarded", "Message discarded, because its error is marked so",
		Topic, Handler, Class, Reason, DeadLetterTopic, Attempt, MessageID)
	Unplaced = event(isError, "unplaced", "All publishers refused the dead letter; the message is nacked",
		Topic, Handler, Class, Reason, DeadLetterTopic, Attempt, MessageID, Failure)
	LetterRefused = event(isError, "letter_refused", "A dead letter was refused",
		DeadLetterTopic, Attempt)
	LetterNotSealed = event(isError, "letter_not_sealed", "A dead letter cannot be sealed; nothing is published, and "+
		"its message is held or nacked", Topic, Attempt)
	LetterPublisherAway = event(isDebug, "letter_publisher_away", "The publisher of dead letters is unavailable",
		DeadLetterTopic, Attempt)
	LetterRaw = event(isError, "letter_raw",
		"The dead letter was refused for its content; it is published in its raw form", Topic, Handler, Class, Reason,
		DeadLetterTopic, Attempt, MessageID, "form")
	LetterPlain = event(isError, "letter_plain", "No dead letter fits beside its message; the message is published as "+
		"it came, and its story is in this log alone. For letters of such messages give QueueConfig.Fallbacks a sink that "+
		"takes larger ones",
		Topic, Handler, Class, Reason, DeadLetterTopic, Attempt, MessageID, "form").always()
	QueueMisplaced = event(isError, "queue_misplaced", "The queue stands inside an idempotent receiver, or is "+
		"attached twice; it passes errors on")
	LetterTopicMissing = event(isError, "letter_topic_missing", "The dead-letter topic may be missing; its first letter "+
		"is published anyway", DeadLetterTopic)
	NoInitializer = event(isInfo, "no_initializer", "The publisher can neither make topics nor look for them, so a "+
		"missing topic shows with its first message: create the topics, and give poison.WithInitializer(publisher, "+
		"poison.TopicsExist)",
		"of", "publisher", "topics")
	OutputRefused = event(isError, "output_refused", "A produced message was refused",
		Topic, Handler)
	OutputsUnprotected = event(isInfo, "outputs_unprotected", "Messages of a handler without Outputs.Middleware are "+
		"published unprotected", Handler)
)

// Other modules.
var (
	ForeignUnknown = event(isInfo, "foreign_unknown", "Something of another module is not as the library knows it, so "+
		"a check or a bound that depends on it may be missing", "of", "unknown")
)

// Functions of the user.
var (
	HookPanicked = event(isError, "hook_panicked", "A hook panicked; the message goes on without it", Hook, Consumer,
		Key)
	MaskPanicked   = event(isError, "mask_panicked", "A mask panicked; the value is withheld", Config)
	RulePanicked   = event(isError, "rule_panicked", "A classification rule failed; it has no say")
	OriginPanicked = event(isError, "origin_panicked", "QueueConfig.Origin panicked; the letter has the origin that "+
		"the router knows")
	ReentryPanicked = event(isError, "reentry_panicked", "ReentryTopic panicked; the letter goes to its origin topic",
		Topic, Handler, DeadLetterTopic, Campaign, MessageID, "redrive_count")
)

// Outages of the channel's own stores and publishers, and of what handlers call.
var (
	OutageBegan = event(isError, "outage_began",
		"An outage began; messages are held, and given back uncounted, until it is over", Store, Since)
	OutageEnded = event(isInfo, "outage_ended", "The outage is over",
		Store, "lasted", "held", "given_back")
	HeldCopy = event(isError, "held_copy", "A broker delivered a message again that is held here; it is not handled "+
		"twice here, and messages of this subscriber are held for less from now on",
		Topic, Handler, StageTopic, MessageID, After, Held)
	HoldCut = event(isError, "hold_cut", "A configured hold is too long for the broker of a topic; its messages are "+
		"held for less", Config, Topic, Handler, StageTopic, "max_hold", Held, "redelivery_time", "delay")
	GuardOpened = event(isError, "guard_opened",
		"The breaker opened: messages are held, uncounted, until a probe succeeds", Handler, State, Reason, "scope",
		"actor", "waiting", "lasted")
	GuardReopened = event(isInfo, "guard_reopened", "The breaker opened again in the ramp: messages are held, "+
		"uncounted, until a probe succeeds", Handler, State, Reason, "scope", "actor", "waiting", "lasted")
	GuardFrozen = event(isInfo, "guard_frozen", "The breaker is open by hand: messages are held, uncounted, until "+
		"it is closed by hand", Handler, State, Reason, "scope", "actor", "waiting", "lasted")
	GuardClosed = event(isInfo, "guard_closed", "The breaker closed: messages pass again",
		Handler, State, Reason, "scope", "actor", "waiting", "lasted")
	GuardChanged = event(isDebug, "guard_changed", "The breaker has another state",
		Handler, State, Reason, "scope", "actor", "waiting", "lasted")
	GuardHeldByOne = event(isError, "guard_held_by_one", "One message alone keeps the breaker open, and has no "+
		"stage to go to: it is held. If the message is at fault, let its error be permanent (classify.Permanent), or give "+
		"the handler stages",
		Topic, Handler, MessageID)
	GuardGaveUp = event(isError, "guard_gave_up", "The breaker holds no more messages for an error of unknown "+
		"meaning: they go on as without a guard. If the error says that something is away, mark it with classify.Away; if "+
		"the message is at fault, with classify.Permanent",
		Handler, Class, "scope", "kind")
	GuardNotCleared = event(isError, "guard_not_cleared", "The store of outages does not answer; outages of this "+
		"instance count until they expire")
	GuardStoreAway = event(isError, "guard_store_away", "The store of outages does not answer; each instance decides "+
		"for itself until it does")
	GuardStoreBack = event(isInfo, "guard_store_back", "The store of outages answers again")
)

// The crash limit.
var (
	CrashStoreAway = event(isError, "crash_store_away", "The store of the crash limit fails; until it answers, crashes "+
		"go undetected and messages are handled unmarked")
	CrashStoreBack = event(isInfo, "crash_store_back", "The store of the crash limit answers again", After, "unmarked")
	CrashMarksKept = event(isInfo, "crash_marks_kept",
		"Old marks of the crash limit cannot be removed; this is tried again")
	CrashMarkLost = event(isError, "crash_mark_lost", "A mark that is to be removed is forgotten, and more may be; it "+
		"counts until its message is handled again, or for 30 days", Handler, Key)
	CrashMessagesUnsigned = event(isError, "crash_messages_unsigned", "Messages that are still being handled are not "+
		"signed off; they count as if this process had died")
	CrashProcessUnsigned = event(isError, "crash_process_unsigned", "This process is not signed off; other processes "+
		"will take its end for a crash")
	CrashPeers = event(isInfo, "crash_peers", "Other processes have not signed off; deliveries are marked "+
		"until each has sent two heartbeats")
	CrashDetected = event(isInfo, "crash_detected", "A process crashed; deliveries are marked", "for")
	CrashQuiet    = event(isInfo, "crash_quiet", "No process crashed since; deliveries are no longer marked")
)

// Stages and the delay store.
var (
	StageCondemned = event(isError, "stage_condemned", "A message cannot go into its stage; it is dead-lettered",
		Topic, Handler, Stage, StageTopic, MessageID)
	StageRefused = event(isError, "stage_refused", "The stage did not take the message; it is given back",
		Topic, Handler, Stage, StageTopic, MessageID)
	StageAbandoned = event(isError, "stage_abandoned", "Messages wait in a stage topic that no handler of this process "+
		"consumes: add their handler, list a removed delay as Retired, or check that another service consumes it",
		StageTopic, Messages)
	StageRowsLeft = event(isError, "stage_rows_left", "Messages wait in the delay store of DB, which this channel does "+
		"not read: give Config.Stages a Store in DB until they were published, or check that another instance does",
		StageTopic, Messages)
	StageSearchFailed = event(isError, "stage_search_failed", "The search for messages in removed stages failed", "in")
	StageRemoved      = event(isInfo, "stage_removed", "A message waits in a stage that was removed; it goes on in the "+
		"nearest stage", Handler, Stage, StageTopic, "nearest")
	StageInTransaction = event(isError, "stage_in_transaction", "The subscriber of a stage topic holds a transaction "+
		"open for each waiting message; messages go round every second and come late",
		Handler, StageTopic, "delay", Held)
	StageDeadline = event(isError, "stage_deadline", "A stage is longer than its subscriber's ack deadline; messages go "+
		"round, come late, and hold a transaction while they wait", Handler, StageTopic, "delay", Held)
	StageRoundRefused = event(isError, "stage_round_refused", "A message that waits longer than MaxHold was not taken "+
		"by its stage topic again; it is given back", Handler, StageTopic, MessageID)
	StageRounds = event(isInfo, "stage_rounds", "A stage is longer than its messages can be held; they are published to "+
		"their stage topic again", Handler, StageTopic, "max_hold", Held, "redelivery_time", "delay")
	SubscriptionEnded = event(isError, "subscription_ended", "A subscription ended by itself; its handler and the "+
		"handler's stages get no more messages", Topic, Handler)
	StageNotClosed = event(isError, "stage_not_closed", "The subscriber of a stage topic cannot be closed", Handler,
		StageTopic)
	StageUnprotected = event(isError, "stage_unprotected", "A handler with stages runs without Stages.Middleware, so "+
		"its messages do not wait in stages: Attach the channel to its router, or add the middleware with AddMiddleware of "+
		"what AddHandler returned",
		Topic, Handler)
	DelayLeaseLost = event(isInfo, "delay_lease_lost", "A relay of the delay store lost a lease; the rest of the batch "+
		"is left to other relays")
	DelayRefused = event(isError, "delay_refused", "Messages out of the delay store are not published; they are tried "+
		"again later", Topic, MessageID, Messages)
	DelayUnsettled = event(isInfo, "delay_unsettled", "A relay of the delay store cannot write down what became of "+
		"messages; other relays take them when the lease is over", "doing")
	DelayStoreAway = event(isError, "delay_store_away", "The delay store fails; messages wait until it answers")
	DelayStoreBack = event(isInfo, "delay_store_back", "The delay store answers again")
)

// The idempotent receiver.
var (
	DuplicateAbsorbed = event(isDebug, "duplicate_absorbed", "The receiver absorbed a duplicate", Consumer, Key)
	VersionSkipped    = event(isDebug, "version_skipped", "The receiver skipped a version: a later one was applied before",
		Consumer, Key, "version", "applied")
	OutputsUnmarked = event(isError, "outputs_unmarked", "The receiver cannot mark outputs as published; a duplicate "+
		"publishes them again", Consumer, Key)
	ConsumerShared = event(isError, "consumer_shared", "Two handlers have the same Consumer: a message that both "+
		"receive is applied by one of them, and absorbed by the other. Give each handler a receiver of its own, or leave "+
		"ReceiverConfig.Consumer out",
		Consumer, "first", "second")
	AppliedUnrecorded = event(isError, "applied_unrecorded", "The receiver cannot record that a message was applied; it "+
		"is given back, and its effects may happen again", Consumer, Key)
	LeaseNotRenewed = event(isDebug, "lease_not_renewed", "The receiver cannot renew a lease, and tries again", Consumer,
		Key)
	LeaseNotGivenUp = event(isInfo, "lease_not_given_up", "The receiver cannot give up the lease of a failed message; "+
		"it comes again when the lease has expired", Consumer, Key)
	LeaseLost = event(isError, "lease_lost", "The receiver lost a lease while the handler was at work; its "+
		"effects may happen twice", Consumer, Key)
	ClaimWaitsForOwn = event(isError, "claim_waits_for_own", "A claim waits for another claim of its own message",
		Consumer, Key)
	ClaimNotReleased = event(isInfo, "claim_not_released", "The receiver cannot release the claim of a duplicate, or "+
		"of a failed message; the database ends it with its connection", Consumer, Key)
	PoolUsedUp = event(isError, "pool_used_up",
		"Messages wait for connections that other messages hold, perhaps for ever", "max_open_connections", "in_use",
		"claims", "waited")
	PurgeTooEarly = event(isError, "purge_too_early", "Keys are purged while their messages may still come again: a "+
		"message that is redriven or retried after its key was purged is applied again",
		"of", "retention", "horizon")
	PurgeFailed = event(isError, "purge_failed", "A purge of keys failed; it is tried again when the next is due", "of",
		"keys")
	KeysPurged = event(isDebug, "keys_purged", "Purged keys", "of", "keys")
	PurgeHangs = event(isError, "purge_hangs",
		"A purge of keys did not end in time; the router stops without waiting for it", "of")
)

// Redrives, the dead-letter store and campaigns.
var (
	RedriveRefused = event(isError, "redrive_refused", "A letter is not redriven",
		Topic, Handler, DeadLetterTopic, Campaign, MessageID, "letter", "redrive_count")
	RedriveClosed = event(isError, "redrive_closed", "A sealed letter does not open; it is not redriven",
		Topic, Handler, DeadLetterTopic, Campaign, MessageID, "letter", "redrive_count")
	RedriveKeysAway = event(isError, "redrive_keys_away",
		"The keys of sealed letters are unavailable; a letter is given back", Topic, Handler, DeadLetterTopic, MessageID,
		"redrive_count")
	RedriveNotAllowed = event(isError, "redrive_not_allowed", "Letters are not redriven, and wait", Topic, Letters)
	RedriveUnplaced   = event(isError, "redrive_unplaced", "A publisher refused a letter",
		Topic, Handler, DeadLetterTopic, MessageID, "redrive_count")
	RedriveTopicMissing = event(isError, "redrive_topic_missing", "The topics for letters that are not redriven may not "+
		"exist; the letter is published there anyway", DeadLetterTopic)
	LetterTakenOver = event(isInfo, "letter_taken_over",
		"A letter was taken over, or arrived again, while it was worked on")
	LettersNotReleased = event(isInfo, "letters_not_released", "Letters were not released; they are free again when "+
		"their lease is over", Campaign)
	LettersNotRenewed = event(isInfo, "letters_not_renewed", "The leases of letters were not renewed; the next try is "+
		"in a third of a lease", Campaign)
	LettersDeleted = event(isInfo, "letters_deleted", "Deleted letters past their retention",
		Letters, "statuses", "classes", "reasons", "causes", "older_than", "service")
	RetentionFailed = event(isError, "retention_failed", "Letters past their retention were not all deleted")
	LettersUnmarked = event(isError, "letters_unmarked", "Letters were not marked; the worker tries again", Campaign,
		Letters)
	LettersMarked  = event(isInfo, "letters_marked", "Letters are marked again", Campaign)
	OutcomeUnsaved = event(isError, "outcome_unsaved",
		"What became of letters was not written down; the worker tries again", Campaign)
	OutcomeSaved   = event(isInfo, "outcome_saved", "What became of letters is written down again", Campaign)
	CampaignStands = event(isError, "campaign_stands", "A campaign stands still; the worker tries again", Campaign)
	CampaignGoesOn = event(isInfo, "campaign_goes_on", "A campaign goes on", Campaign)
	CampaignLeft   = event(isError, "campaign_left", "A campaign is left to other workers", Campaign)
	ConsoleFailed  = event(isError, "console_failed", "The console could not answer a request", "page", "method")
	CampaignWaits  = event(isInfo, "campaign_waits", "A campaign waits for its turn: more have letters due than a "+
		"worker works on at the same time", Campaign)
	CampaignsStand = event(isError, "campaigns_stand", "Campaigns stand still; the worker tries again")
	CampaignsGoOn  = event(isInfo, "campaigns_go_on", "Campaigns go on")
)

// The notices of observe/notify.
var (
	NoticeLinkPanicked = event(isError, "notice_link_panicked", "Config.Link panicked; the notice goes on without it")
	NoticeQueueFull    = event(isError, "notice_queue_full", "The queue of a sink is full: notices are dropped until it "+
		"accepts them", "sink", "notice", "kind", "status", CauseID)
	NoticeSinkHangs = event(isError, "notice_sink_hangs",
		"A sink of notices does not end with its context, and is left behind", "sink")
	NoticeGivenUp = event(isError, "notice_given_up", "A notice was given up: the sink did not accept it",
		"sink", "notice", "kind", "status", CauseID)
	NoticeInterrupted = event(isInfo, "notice_interrupted", "The router closed before a notice was sent; another "+
		"instance sends it if they share a database", "sink", "notice", "kind", "status", CauseID)
	NoticeSinkAway = event(isError, "notice_sink_away", "A sink does not accept a notice; it is tried again",
		"sink", "notice", "kind", "status", CauseID)
	NoticeSinkBack = event(isInfo, "notice_sink_back", "A sink accepts notices again",
		"sink", "notice", "kind", "status", CauseID)
	NoticeStoreAway = event(isError, "notice_store_away", "The database of the notices does not answer; what happens is "+
		"counted, and sent when it answers")
	NoticeStoreBack = event(isInfo, "notice_store_back", "The database of the notices answers again")
	NoticesLost     = event(isError, "notices_lost",
		"Notices were given up: two instances ended before they had sent them", "notices")
)

// The adapters.
var (
	SessionEnded = event(isDebug, "session_ended", "The group session ended before the message was settled; it will be "+
		"redelivered", Topic, Partition, Offset)
	SubscriptionCut = event(isError, "subscription_cut", "A subscription did not end in time; its connections are cut")
	SessionAgain    = event(isInfo, "session_again",
		"A group session ended and the next one began; no message was delivered in between",
		Topic, ConsumerGroup, "lasted")
	StagesNotJoined = event(isError, "stages_not_joined",
		"The consumer group of the stages cannot be joined; it is tried again until it can", "group")
	StagesJoined  = event(isInfo, "stages_joined", "The consumer group of the stages is joined again", "group", "lasted")
	StageNotTaken = event(isInfo, "stage_not_taken",
		"A stage topic cannot be consumed yet; it is tried again each second", StageTopic, "group")
	StageNotFetched = event(isInfo, "stage_not_fetched", "A stage topic cannot be read; it is tried again", Topic,
		Partition, Offset, "broker")
	StageNotMarked = event(isInfo, "stage_not_marked", "Offsets of a stage topic cannot be committed; it is tried "+
		"again each second", StageTopic, "group")
	IdleNotClosed = event(isInfo, "idle_not_closed", "The connections of an idle publisher were closed, with an error; "+
		"the next message opens others")
	SourceUnknown = event(isError, "source_unknown", "The source topic cannot be described; its dead-letter topics are "+
		"created without a source", Topic)
	TopicCreated = event(isInfo, "topic_created", "Created a topic", Topic, "settings")
	TopicGuessed = event(isInfo, "topic_guessed",
		"A topic was created without its source, which no broker knows yet; its settings are guessed",
		Topic, "source", "settings")
	TopicWeak = event(isError, "topic_weak",
		"A topic confirms its records with fewer replicas than its source asks for", Topic, "source")
	TopicLossy = event(isError, "topic_lossy", "Messages may be lost or refused, which "+
		"PublisherConfig.AllowLossyTopics accepts")
	RequestUnknown = event(isDebug, "request_unknown", "The broker does not report how large a request may be")
	QueueDiffers   = event(isInfo, "queue_differs",
		"The dead-letter queue is there with other arguments; it is taken as it is", Queue, "loses")
	QueueUnknown = event(isInfo, "queue_unknown", "The dead-letter queue is there; the broker does not show whether it "+
		"keeps its letters. It is taken as it is", Queue, "loses")
	HandlerIgnoresContext = event(isInfo, "handler_ignores_context", "A handler ignores its context and runs on; its "+
		"message is requeued", Queue, MessageID, "grace")
	ConsumeNotResumed = event(isError, "consume_not_resumed", "Consuming could not begin again after a lost channel or "+
		"an outage; it is tried again", Queue, Wait)
	ConsumeStillAway = event(isDebug, "consume_still_away", "Consuming could not begin again yet", Queue, Wait)
	ConsumeResumed   = event(isInfo, "consume_resumed", "Consuming has begun again", Queue, "lasted")
	PositionMoved    = event(isInfo, "position_moved", "The position is valid on another server: its transaction ids go "+
		"on from those of the old server", Topic, ConsumerGroup)
	PositionReset = event(isError, "position_reset", "The position was set back to the start: everything in the table "+
		"is delivered", Topic, ConsumerGroup)
	HandlerTooSlow = event(isInfo, "handler_too_slow", "A handler did not settle its message in time: its transaction "+
		"is rolled back, and its messages come again", Topic, ConsumerGroup)
	ConsumeFailed = event(isError, "consume_failed",
		"Consuming failed: what was not committed comes again; it is tried again until it succeeds",
		Topic, ConsumerGroup)
	ConsumeGoesOn = event(isInfo, "consume_goes_on", "Consuming goes on",
		Topic, ConsumerGroup, "lasted")
	ServerUnrecorded = event(isInfo, "server_unrecorded", "The table of positions has no column spillway_server, so a "+
		"move to another server is noticed only until transaction ids pass the position; the next start adds the column",
		Topic)
	TableExists    = event(isInfo, "table_exists", "The table of the topic exists", Topic)
	ForeignAdapter = event(isInfo, "foreign_adapter", "The adapters are not watermill-sql's own for this database; "+
		"their own queries are used, at their own cost", "schema", "offsets", "database")
)
