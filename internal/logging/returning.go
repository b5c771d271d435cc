package logging

// Redrives, letters and campaigns.
var (
	// each: Read the error; the letter waits.
	RedriveRefused = event(isError, "redrive_refused", "A letter is not redriven",
		Topic, Handler, DeadLetterTopic, Campaign, MessageID, "letter", "redrive_count")
	// each: Add the key that the error names: docs/sealing.md.
	RedriveClosed = event(isError, "redrive_closed", "A sealed letter does not open; it is not redriven",
		Topic, Handler, DeadLetterTopic, Campaign, MessageID, "letter", "redrive_count")
	// each: See to the KMS.
	RedriveKeysAway = event(isError, "redrive_keys_away",
		"The keys of sealed letters are unavailable; a letter is requeued", Topic, Handler, DeadLetterTopic, MessageID,
		"redrive_count")
	// each: Add the topic to `Allow`, if it is right.
	RedriveNotAllowed = event(isError, "redrive_not_allowed", "Letters are not redriven, and wait", Topic, Letters)
	// each: Repair the topic, or its publisher.
	RedriveUnplaced = event(isError, "redrive_unplaced", "A publisher refused a letter",
		Topic, Handler, DeadLetterTopic, MessageID, "redrive_count")
	// start: Create the topic.
	RedriveTopicMissing = event(isError, "redrive_topic_missing",
		"The topics for letters that are not redriven may not "+
			"exist; the letter is published there anyway", DeadLetterTopic)
	// each: nothing
	LetterTakenOver = event(isInfo, "letter_taken_over",
		"A letter was taken over, or arrived again, while it was worked on")
	// each: nothing
	LettersNotReleased = event(isInfo, "letters_not_released", "Letters were not released; they are free again when "+
		"their lease is over", Campaign)
	// each: nothing, unless it goes on
	LettersNotRenewed = event(isInfo, "letters_not_renewed", "The leases of letters were not renewed; the next try is "+
		"in a third of a lease", Campaign)
	// each: nothing
	LettersDeleted = event(isInfo, "letters_deleted", "Deleted letters past their retention",
		Letters, "statuses", "classes", "reasons", "causes", "older_than", "service")
	// each: Repair the database, if it goes on.
	RetentionFailed = event(isError, "retention_failed", "Letters past their retention were not all deleted")
	// outage: Repair the database.
	LettersUnmarked = event(isError, "letters_unmarked", "Letters were not marked; the worker tries again", Campaign,
		Letters)
	// outage: nothing
	LettersMarked = event(isInfo, "letters_marked", "Letters are marked again", Campaign)
	// outage: Repair the database.
	OutcomeUnsaved = event(isError, "outcome_unsaved",
		"What became of letters was not written down; the worker tries again", Campaign)
	// outage: nothing
	OutcomeSaved = event(isInfo, "outcome_saved", "What became of letters is written down again", Campaign)
	// outage: Read the error: database or target.
	CampaignStands = event(isError, "campaign_stands", "A campaign stands still; the worker tries again", Campaign)
	// outage: nothing
	CampaignGoesOn = event(isInfo, "campaign_goes_on", "A campaign goes on", Campaign)
	// once: Give a worker what the error names.
	CampaignLeft = event(isError, "campaign_left", "A campaign is left to other workers", Campaign)
	// each: Read the error: database, `Config.Access`, `Config.Breakers`, or a slow query.
	ConsoleFailed = event(isError, "console_failed", "The console could not answer a request", "page", "method")
	// once: nothing, or run more workers
	CampaignWaits = event(isInfo, "campaign_waits", "A campaign waits for its turn: more have letters due than a "+
		"worker works on at the same time", Campaign)
	// each: nothing
	PolicyStarted = event(isInfo, "policy_started", "A standing policy starts a campaign", Policy, Campaign, CauseHash)
	// each: Repair the cause, then `redrive policies release`.
	PolicyBlocked = event(isError, "policy_blocked", "A standing policy leaves a cause to a person", Policy, CauseHash,
		Reason)
	// outage: Repair the database.
	CampaignsStand = event(isError, "campaigns_stand", "Campaigns stand still; the worker tries again")
	// outage: nothing
	CampaignsGoOn = event(isInfo, "campaigns_go_on", "Campaigns go on")
)

// Notices.
var (
	// start: Call `Watch` of the Notifier, and `router.AddPlugin(notifier.Plugin)`.
	NoticesOff = event(isError, "notices_off", "A Notifier in Config.Observers sends nothing: no router has its Plugin")
	// each: Repair the function.
	NoticeLinkPanicked = event(isError, "notice_link_panicked", "Config.Link panicked; the notice goes on without it")
	// once: Repair the sink; the next notice counts the lost ones.
	NoticeQueueFull = event(isError, "notice_queue_full", "The queue of a sink is full: notices are dropped until it "+
		"accepts them", "sink", "notice", "kind", "status", CauseID)
	// stop: Let the sink end with its context.
	NoticeSinkHangs = event(isError, "notice_sink_hangs",
		"A sink of notices does not end with its context, and is left behind", "sink")
	// each: Repair the sink.
	NoticeGivenUp = event(isError, "notice_given_up", "A notice was given up: the sink did not accept it",
		"sink", "notice", "kind", "status", CauseID)
	// stop: nothing
	NoticeInterrupted = event(isInfo, "notice_interrupted", "The router closed before a notice was sent; another "+
		"instance sends it if they share a database", "sink", "notice", "kind", "status", CauseID)
	// outage: Repair the sink.
	NoticeSinkAway = event(isError, "notice_sink_away", "A sink does not accept a notice; it is tried again",
		"sink", "notice", "kind", "status", CauseID)
	// outage: nothing
	NoticeSinkBack = event(isInfo, "notice_sink_back", "A sink accepts notices again",
		"sink", "notice", "kind", "status", CauseID)
	// outage: Repair the database.
	NoticeStoreAway = event(isError, "notice_store_away",
		"The database of the notices does not answer; what happens is "+
			"counted, and sent when it answers")
	// outage: nothing
	NoticeStoreBack = event(isInfo, "notice_store_back", "The database of the notices answers again")
	// each: Look why instances ended.
	NoticesLost = event(isError, "notices_lost",
		"Notices were given up: two instances ended before they had sent them", "notices")
)
