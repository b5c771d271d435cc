package logging

// The receiver, and the purge of keys.
var (
	// each: nothing
	DuplicateAbsorbed = event(isDebug, "duplicate_absorbed", "The receiver absorbed a duplicate")
	// each: nothing
	SettledAbsorbed = event(isDebug, "settled_absorbed",
		"The receiver absorbed a message that ended without an effect before")
	// each: nothing
	VersionSkipped = event(isDebug, "version_skipped", "The receiver skipped a version: a later one was applied before")
	// each: Repair the database.
	OutputsUnmarked = event(isError, "outputs_unmarked",
		"The receiver cannot mark outputs as published; a duplicate publishes them again")
	// once: Give each handler its own receiver.
	ConsumerShared = event(isError, "consumer_shared",
		"Two handlers have the same Consumer: a message that both receive is applied by one of them, and absorbed by "+
			"the other. Give each handler a receiver of its own, or leave ReceiverConfig.Consumer out")
	// each: Look for effects that happened twice.
	AppliedUnrecorded = event(isError, "applied_unrecorded",
		"The receiver cannot record that a message was applied; it is requeued, and its effects may happen again")
	// each: nothing
	LeaseNotRenewed = event(isDebug, "lease_not_renewed", "The receiver cannot renew a lease, and tries again")
	// each: nothing
	LeaseNotGivenUp = event(isInfo, "lease_not_given_up",
		"The receiver cannot give up the lease of a failed message; it comes again when the lease has expired")
	// each: Look for double effects; make the lease longer than the handler.
	LeaseLost = event(isError, "lease_lost",
		"The receiver lost a lease while the handler was at work; its effects may happen twice")
	// each: Settle the message before it is handled again.
	ClaimWaitsForOwn = event(isError, "claim_waits_for_own", "A claim waits for another claim of its own message")
	// each: nothing, unless it goes on
	ClaimNotReleased = event(isInfo, "claim_not_released",
		"The receiver cannot release the claim of a duplicate, or of a failed message; the database ends it with its "+
			"connection")
	// once: Raise `SetMaxOpenConns`, or handle fewer messages at once.
	PoolUsedUp = event(isError, "pool_used_up",
		"Messages wait for connections that other messages hold, perhaps for ever")
	// start: Make `PurgeConfig.Retention` longer than the horizon.
	PurgeTooEarly = event(isError, "purge_too_early",
		"Keys are purged while their messages may still come again: a message that is redriven or retried after its "+
			"key was purged is applied again")
	// each: Repair the database, if it goes on.
	PurgeFailed = event(isError, "purge_failed", "A purge of keys failed; it is tried again when the next is due")
	// each: nothing
	KeysPurged = event(isDebug, "keys_purged", "Purged keys")
	// stop: Repair the database.
	PurgeHangs = event(isError, "purge_hangs",
		"A purge of keys did not end in time; the router stops without waiting for it")
)

// Redrives, letters and campaigns.
var (
	// each: Read the error; the letter waits.
	RedriveRefused = event(isError, "redrive_refused", "A letter is not redriven")
	// each: Add the key that the error names: docs/sealing.md.
	RedriveClosed = event(isError, "redrive_closed", "A sealed letter does not open; it is not redriven")
	// each: See to the KMS.
	RedriveKeysUnavailable = event(isError, "redrive_keys_unavailable",
		"The keys of sealed letters are unavailable; a letter is requeued")
	// each: Add the topic to `Allow`, if it is right.
	RedriveNotAllowed = event(isError, "redrive_not_allowed", "Letters are not redriven, and wait")
	// each: Repair the topic, or its publisher.
	RedriveUnplaced = event(isError, "redrive_unplaced", "A publisher refused a letter")
	// start: Create the topic.
	RedriveTopicMissing = event(isError, "redrive_topic_missing",
		"The topics for letters that are not redriven may not exist; the letter is published there anyway")
	// each: nothing
	LetterTakenOver = event(isInfo, "letter_taken_over",
		"A letter was taken over, or arrived again, while it was worked on")
	// each: nothing
	LettersNotReleased = event(isInfo, "letters_not_released",
		"Letters were not released; they are free again when their lease is over")
	// each: nothing, unless it goes on
	LettersNotRenewed = event(isInfo, "letters_not_renewed",
		"The leases of letters were not renewed; the next try is in a third of a lease")
	// each: nothing
	LettersDeleted = event(isInfo, "letters_deleted", "Deleted letters past their retention")
	// each: Repair the database, if it goes on.
	RetentionFailed = event(isError, "retention_failed", "Letters past their retention were not all deleted")
	// outage: Repair the database.
	LettersUnmarked = event(isError, "letters_unmarked", "Letters were not marked; the worker tries again")
	// outage: nothing
	LettersMarked = event(isInfo, "letters_marked", "Letters are marked again")
	// outage: Read the error: database or target.
	CampaignStalled = event(isError, "campaign_stalled", "A campaign stands still; the worker tries again")
	// outage: nothing
	CampaignResumed = event(isInfo, "campaign_resumed", "A campaign goes on")
	// once: Give a worker what the error names.
	CampaignLeft = event(isError, "campaign_left", "A campaign is left to other workers")
	// each: Read the error: database, `Config.Access`, `Config.Breakers`, or a slow query.
	ConsoleFailed = event(isError, "console_failed", "The console could not answer a request")
	// once: nothing, or run more workers
	CampaignWaits = event(isInfo, "campaign_waits",
		"A campaign waits for its turn: more have letters due than a worker works on at the same time")
	// each: nothing
	PolicyStarted = event(isInfo, "policy_started", "A standing policy starts a campaign")
	// each: Repair the cause, then `redrive policies release`.
	PolicyBlocked = event(isError, "policy_blocked", "A standing policy leaves a cause to a person")
	// outage: Repair the database.
	CampaignsStand = event(isError, "campaigns_stalled", "Campaigns stand still; the worker tries again")
	// outage: nothing
	CampaignsGoOn = event(isInfo, "campaigns_resumed", "Campaigns go on")
)

// Notices.
var (
	// start: Call `Watch` of the Notifier, and `router.AddPlugin(notifier.Plugin)`.
	NoticesOff = event(isError, "notices_off", "A Notifier in Config.Observers sends nothing: no router has its Plugin")
	// each: Repair the function.
	NoticeLinkPanicked = event(isError, "notice_link_panicked", "Config.Link panicked; the notice goes on without it")
	// once: Repair the sink; the next notice counts the lost ones.
	NoticeQueueFull = event(isError, "notice_queue_full",
		"The queue of a sink is full: notices are dropped until it accepts them")
	// stop: Let the sink end with its context.
	NoticeSinkHangs = event(isError, "notice_sink_hangs",
		"A sink of notices does not end with its context, and is left behind")
	// each: Repair the sink.
	NoticeGivenUp = event(isError, "notice_given_up", "A notice was given up: the sink did not accept it")
	// stop: nothing
	NoticeInterrupted = event(isInfo, "notice_interrupted",
		"The router closed before a notice was sent; another instance sends it if they share a database")
	// outage: Repair the sink.
	NoticeSinkUnavailable = event(isError, "notice_sink_unavailable",
		"A sink does not accept a notice; it is tried again")
	// outage: nothing
	NoticeSinkBack = event(isInfo, "notice_sink_back", "A sink accepts notices again")
	// outage: Repair the database.
	NoticeStoreUnavailable = event(isError, "notice_store_unavailable",
		"The database of the notices does not answer; what happens is counted, and sent when it answers")
	// outage: nothing
	NoticeStoreBack = event(isInfo, "notice_store_back", "The database of the notices answers again")
	// each: Look why instances ended.
	NoticesLost = event(isError, "notices_lost", "Notices were given up: two instances ended before they had sent them")
)

// Adapters for Kafka, RabbitMQ and SQL.
var (
	// each: nothing
	SessionEnded = event(isDebug, "session_ended",
		"The group session ended before the message was settled; it will be redelivered")
	// stop: Let handlers end with their context.
	SubscriptionCut = event(isError, "subscription_cut", "A subscription did not end in time; its connections are cut")
	// each: nothing, unless `lasted` is long: a member leaves late
	SessionAgain = event(isInfo, "session_again",
		"A group session ended and the next one began; no message was delivered in between")
	// each: Start the service within seven days: the broker then forgets the offsets, and all messages come again.
	OffsetsNotPinned = event(isError, "offsets_not_pinned",
		"A member that left could not have its offsets kept for good; the broker keeps them for its own time")
	// outage: Check the brokers, and the client's right to join.
	StagesNotJoined = event(isError, "stages_not_joined",
		"The consumer group of the stages cannot be joined; it is tried again until it can")
	// outage: nothing
	StagesJoined = event(isInfo, "stages_joined", "The consumer group of the stages is joined again")
	// once: End older instances, or read the error.
	StageNotTaken = event(isInfo, "stage_not_taken",
		"A stage topic cannot be consumed yet; it is tried again each second")
	// each: nothing, unless it lasts
	StageNotFetched = event(isInfo, "stage_not_fetched", "A stage topic cannot be read; it is tried again")
	// each: nothing, unless it lasts
	StageNotMarked = event(isInfo, "stage_not_marked",
		"Offsets of a stage topic cannot be committed; it is tried again each second")
	// each: nothing
	IdleNotClosed = event(isInfo, "idle_not_closed",
		"The connections of an idle publisher were closed, with an error; the next message opens others")
	// once: Let the client describe the topic.
	SourceUnknown = event(isError, "source_unknown",
		"The source topic cannot be described; its dead-letter topics are created without a source")
	// once: nothing
	TopicCreated = event(isInfo, "topic_created", "Created a topic")
	// once: Create the source first; delete the guessed topic while it is empty.
	TopicGuessed = event(isInfo, "topic_guessed",
		"A topic was created without its source, which no broker knows yet; its settings are guessed")
	// start: Set `min.insync.replicas` as the error says.
	TopicWeak = event(isError, "topic_weak",
		"A topic confirms its records with fewer replicas than its source asks for")
	// outage: Give the client's user its right back, or its credentials.
	TopicDenied = event(isError, "topic_denied", "The broker denies this client a topic; its messages wait")
	// once: Change the topic, or accept the error.
	TopicLossy = event(isError, "topic_lossy",
		"Messages may be lost or refused, which PublisherConfig.AllowLossyTopics accepts")
	// once: nothing
	RequestUnknown = event(isDebug, "request_unknown", "The broker does not report how large a request may be")
	// once: Compare arguments: `loses` says what the queue drops.
	QueueDiffers = event(isInfo, "queue_differs",
		"The dead-letter queue is there with other arguments; it is taken as it is")
	// once: Check the queue's arguments by hand.
	QueueUnknown = event(isInfo, "queue_unknown",
		"The dead-letter queue is there; the broker does not show whether it keeps its letters. It is taken as it is")
	// each: Let the handler end with its context.
	HandlerIgnoresContext = event(isInfo, "handler_ignores_context",
		"A handler ignores its context and runs on; its message is requeued")
	// outage: Repair the broker, or the queue.
	ConsumeNotResumed = event(isError, "consume_not_resumed",
		"Consuming could not begin again after a lost channel or an outage; it is tried again")
	// each: nothing
	ConsumeStillUnavailable = event(isDebug, "consume_still_unavailable", "Consuming could not begin again yet")
	// outage: nothing
	ConsumeResumed = event(isInfo, "consume_resumed", "Consuming has begun again")
	// each: Let `Key` return the key of every message, or "" for one without a key.
	KeyPanicked = event(isError, "key_panicked",
		"SubscriberConfig.Key panicked; the partition waits until it returns a key")
	// each: Look for nodes that hang or are cut off.
	ConsumersVanished = event(isError, "consumers_vanished",
		"The broker has no consumer of the queue any more, and said nothing: consuming begins again")
	// each: If the queue was not deleted: lower `MaxHold`, or raise the broker's `consumer_timeout`.
	ConsumerLost = event(isInfo, "consumer_lost",
		"The broker ended a consumer or its channel: what was not settled comes again, and consuming begins again")
	// each: Set `x-delivery-limit` to -1, or let the user write to the default exchange.
	ReturnRefused = event(isError, "return_refused",
		"The queue drops a message that is returned once more, and it could not be published again: it is held")
	// once: Let all messages of a key have the same priority, or none.
	PriorityReorders = event(isError, "priority_reorders",
		"The queue delivers by priority: messages of a key whose priorities differ come out of their order")
	// once: nothing
	PositionMoved = event(isInfo, "position_moved",
		"The position is valid on another server: its transaction ids go on from those of the old server")
	// once: Expect duplicates, as `RestartIfAhead` asked.
	PositionReset = event(isError, "position_reset",
		"The position was set back to the start: everything in the table is delivered")
	// each: Raise the ack deadline, or speed the handler up.
	HandlerTooSlow = event(isInfo, "handler_too_slow",
		"A handler did not settle its message in time: its transaction is rolled back, and its messages come again")
	// outage: Repair the database.
	ConsumeFailed = event(isError, "consume_failed",
		"Consuming failed: what was not committed comes again; it is tried again until it succeeds")
	// outage: nothing
	ConsumeContinued = event(isInfo, "consume_continued", "Consuming goes on")
	// start: nothing; the next start adds it
	ServerUnrecorded = event(isInfo, "server_unrecorded",
		"The table of positions has no column spillway_server, so a move to another server is noticed only until "+
			"transaction ids pass the position; the next start adds the column")
	// start: nothing
	TableExists = event(isInfo, "table_exists", "The table of the topic exists")
	// start: Read what it costs: docs/sql.md.
	ForeignAdapter = event(isInfo, "foreign_adapter",
		"The schema is not watermill-sql's own for this database; its own queries are used, at their cost")
)
