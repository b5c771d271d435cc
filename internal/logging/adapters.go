package logging

// Adapters for Kafka, RabbitMQ and SQL.
var (
	// each: nothing
	SessionEnded = event(isDebug, "session_ended",
		"The group session ended before the message was settled; it will be "+
			"redelivered", Topic, Partition, Offset)
	// stop: Let handlers end with their context.
	SubscriptionCut = event(isError, "subscription_cut", "A subscription did not end in time; its connections are cut")
	// each: nothing, unless `lasted` is long: a member leaves late
	SessionAgain = event(isInfo, "session_again",
		"A group session ended and the next one began; no message was delivered in between",
		Topic, ConsumerGroup, "lasted")
	// each: Start the service within seven days: the broker then forgets the offsets, and all messages come again.
	OffsetsNotPinned = event(isError, "offsets_not_pinned",
		"A member that left could not have its offsets kept for good; the broker keeps them for its own time",
		Topic, ConsumerGroup)
	// outage: Check the brokers, and the client's right to join.
	StagesNotJoined = event(isError, "stages_not_joined",
		"The consumer group of the stages cannot be joined; it is tried again until it can", "group")
	// outage: nothing
	StagesJoined = event(isInfo, "stages_joined", "The consumer group of the stages is joined again", "group", "lasted")
	// once: End older instances, or read the error.
	StageNotTaken = event(isInfo, "stage_not_taken",
		"A stage topic cannot be consumed yet; it is tried again each second", StageTopic, "group")
	// each: nothing, unless it lasts
	StageNotFetched = event(isInfo, "stage_not_fetched", "A stage topic cannot be read; it is tried again", Topic,
		Partition)
	// each: nothing, unless it lasts
	StageNotMarked = event(isInfo, "stage_not_marked", "Offsets of a stage topic cannot be committed; it is tried "+
		"again each second", StageTopic, "group")
	// each: nothing
	IdleNotClosed = event(isInfo, "idle_not_closed",
		"The connections of an idle publisher were closed, with an error; "+
			"the next message opens others")
	// once: Let the client describe the topic.
	SourceUnknown = event(isError, "source_unknown",
		"The source topic cannot be described; its dead-letter topics are "+
			"created without a source", Topic)
	// once: nothing
	TopicCreated = event(isInfo, "topic_created", "Created a topic", Topic, "settings")
	// once: Create the source first; delete the guessed topic while it is empty.
	TopicGuessed = event(isInfo, "topic_guessed",
		"A topic was created without its source, which no broker knows yet; its settings are guessed",
		Topic, "source", "settings")
	// start: Set `min.insync.replicas` as the error says.
	TopicWeak = event(isError, "topic_weak",
		"A topic confirms its records with fewer replicas than its source asks for", Topic, "source")
	// outage: Give the client's user its right back, or its credentials.
	TopicDenied = event(isError, "topic_denied", "The broker denies this client a topic; its messages wait", Topic)
	// once: Change the topic, or accept the error.
	TopicLossy = event(isError, "topic_lossy", "Messages may be lost or refused, which "+
		"PublisherConfig.AllowLossyTopics accepts")
	// once: nothing
	RequestUnknown = event(isDebug, "request_unknown", "The broker does not report how large a request may be")
	// once: Compare arguments: `loses` says what the queue drops.
	QueueDiffers = event(isInfo, "queue_differs",
		"The dead-letter queue is there with other arguments; it is taken as it is", Queue, "loses")
	// once: Check the queue's arguments by hand.
	QueueUnknown = event(isInfo, "queue_unknown",
		"The dead-letter queue is there; the broker does not show whether it "+
			"keeps its letters. It is taken as it is", Queue, "loses")
	// each: Let the handler end with its context.
	HandlerIgnoresContext = event(isInfo, "handler_ignores_context", "A handler ignores its context and runs on; its "+
		"message is requeued", Queue, MessageID, "grace")
	// outage: Repair the broker, or the queue.
	ConsumeNotResumed = event(isError, "consume_not_resumed",
		"Consuming could not begin again after a lost channel or "+
			"an outage; it is tried again", Queue, Wait)
	// each: nothing
	ConsumeStillAway = event(isDebug, "consume_still_away", "Consuming could not begin again yet", Queue, Wait)
	// outage: nothing
	ConsumeResumed = event(isInfo, "consume_resumed", "Consuming has begun again", Queue, "lasted")
	// each: Let `Key` return the key of every message, or "" for one without a key.
	KeyPanicked = event(isError, "key_panicked",
		"SubscriberConfig.Key panicked; the partition waits until it returns a key",
		Topic, Partition, MessageID)
	// each: Look for nodes that hang or are cut off.
	ConsumersVanished = event(isError, "consumers_vanished",
		"The broker has no consumer of the queue any more, and said "+
			"nothing: consuming begins again", Queue)
	// each: If the queue was not deleted: lower `MaxHold`, or raise the broker's `consumer_timeout`.
	ConsumerLost = event(isInfo, "consumer_lost",
		"The broker ended a consumer or its channel: what was not settled comes again, and consuming begins again", Queue)
	// each: Set `x-delivery-limit` to -1, or let the user write to the default exchange.
	ReturnRefused = event(isError, "return_refused", "The queue drops a message that is returned once more, and it could "+
		"not be published again: it is held", Queue, MessageID)
	// once: Let all messages of a key have the same priority, or none.
	PriorityReorders = event(isError, "priority_reorders", "The queue delivers by priority: messages of a key whose "+
		"priorities differ come out of their order", Queue, MessageID, "priority")
	// once: nothing
	PositionMoved = event(isInfo, "position_moved", "The position is valid on another server: its transaction ids go "+
		"on from those of the old server", Topic, ConsumerGroup)
	// once: Expect duplicates, as `RestartIfAhead` asked.
	PositionReset = event(isError, "position_reset", "The position was set back to the start: everything in the table "+
		"is delivered", Topic, ConsumerGroup)
	// each: Raise the ack deadline, or speed the handler up.
	HandlerTooSlow = event(isInfo, "handler_too_slow", "A handler did not settle its message in time: its transaction "+
		"is rolled back, and its messages come again", Topic, ConsumerGroup)
	// outage: Repair the database.
	ConsumeFailed = event(isError, "consume_failed",
		"Consuming failed: what was not committed comes again; it is tried again until it succeeds",
		Topic, ConsumerGroup)
	// outage: nothing
	ConsumeGoesOn = event(isInfo, "consume_goes_on", "Consuming goes on",
		Topic, ConsumerGroup, "lasted")
	// start: nothing; the next start adds it
	ServerUnrecorded = event(isInfo, "server_unrecorded", "The table of positions has no column spillway_server, so a "+
		"move to another server is noticed only until transaction ids pass the position; the next start adds the column",
		Topic)
	// start: nothing
	TableExists = event(isInfo, "table_exists", "The table of the topic exists", Topic)
	// start: Read what it costs: docs/sql.md.
	ForeignAdapter = event(isInfo, "foreign_adapter", "The schema is not watermill-sql's own for this database; "+
		"its own queries are used, at their cost", "schema", "database")
)
