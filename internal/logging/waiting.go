package logging

// Stages and the delay store.
var (
	// each: Repair the database. The partition waits.
	SequencesAway = event(isError, "sequences_away", "Parked messages cannot be read or written; their partition waits",
		Topic, Partition, ConsumerGroup, Consumer, Key)
	// each: Add the channel with Attach, before what copies messages.
	OrderUnknown = event(isError, "order_unknown",
		"A message of an ordered handler has no place in an order; it is requeued",
		Topic, Handler, MessageID)
	// start: Set `Config.Ordered` until the messages are gone.
	ParkedLeft = event(isError, "parked_left", "Messages wait in the order of their key, and this channel has no Ordered: "+
		"later messages of their keys overtake them. Set Config.Ordered until they are gone, or check that another "+
		"instance has it", Messages)
	// each: nothing
	MessageParked = event(isInfo, "message_parked",
		"The handler failed; the message waits, and those of its key behind it",
		Topic, Handler, Class, Stage, Attempt, Wait, MessageID)
	// each: Release, skip or discard the message: `redrive sequences`.
	SequenceHeld = event(isError, "sequence_held", "A message failed for good; its key stands until a person decides",
		Topic, Handler, Class, Reason, MessageID)
	// each: Repair what the handler needs. `redrive sequences` names the keys.
	SequencesFull = event(isError, "sequences_full",
		"As many messages are parked as may be; their partition waits for room",
		Topic, Partition, ConsumerGroup)
	// each: nothing
	SequencesHaveRoom = event(isInfo, "sequences_have_room",
		"There is room for parked messages again; their partition goes on",
		Topic, Partition, ConsumerGroup)
	// each: Look at the letter: its message took effect.
	SettledApplied = event(isInfo, "settled_applied",
		"A message that was dead-lettered has had its effect before, by a "+
			"process that was stopped", Consumer, Key)
	// each: Look why the stage refuses it.
	StageCondemned = event(isError, "stage_condemned", "A message cannot go into its stage; it is dead-lettered",
		Topic, Handler, Stage, StageTopic, MessageID)
	// each: Repair the stage topic.
	StageRefused = event(isError, "stage_refused", "The stage did not take the message; it is requeued",
		Topic, Handler, Stage, StageTopic, MessageID)
	// start: Add the handlers with `Stages.AddHandler`, or leave the stages out.
	StagesUnused = event(isError, "stages_unused",
		"There are retry stages, and no handler has them: a message that fails is "+
			"dead-lettered after its attempts. Add handlers with Stages.AddHandler or AddConsumerHandler, or leave the stages out")
	// start: Add the handler, or list the delay as `Retired`.
	StageAbandoned = event(isError, "stage_abandoned",
		"Messages wait in a stage topic that no handler of this process "+
			"consumes: add their handler, list a removed delay as Retired, or check that another service consumes it",
		StageTopic, Messages)
	// start: Give one instance with these handlers a `Stages.Store` in `DB` until the messages are gone.
	StageRowsLeft = event(isError, "stage_rows_left",
		"Messages wait in the delay store of DB, which this channel does "+
			"not read: give Config.Stages a Store in DB until they were published, or check that another instance does",
		StageTopic, Messages)
	// start: Read the error; messages may wait in a removed stage.
	StageSearchFailed = event(isError, "stage_search_failed", "The search for messages in removed stages failed", "in")
	// each: nothing
	StageRemoved = event(isInfo, "stage_removed", "A message waits in a stage that was removed; it goes on in the "+
		"nearest stage", Handler, Stage, StageTopic, "nearest")
	// start: Set `stages.Config.Store`.
	StageInTransaction = event(isError, "stage_in_transaction", "The subscriber of a stage topic holds a transaction "+
		"open for each waiting message; messages go round every second and come late",
		Handler, StageTopic, "delay", Held)
	// start: Set `stages.Config.Store`, or a longer ack deadline.
	StageDeadline = event(isError, "stage_deadline",
		"A stage is longer than its subscriber's ack deadline; messages go "+
			"round, come late, and hold a transaction while they wait", Handler, StageTopic, "delay", Held)
	// each: Repair the stage topic.
	StageRoundRefused = event(isError, "stage_round_refused", "A message that goes round was not taken "+
		"by its stage topic again; it is requeued", Handler, StageTopic, MessageID)
	// start: nothing
	StageRounds = event(isInfo, "stage_rounds", "A stage is longer than its messages can be held; they are published to "+
		"their stage topic again", Handler, StageTopic, Held, "redelivery_time", "delay")
	// once: Restart the process; look what the broker did.
	SubscriptionEnded = event(isError, "subscription_ended", "A subscription ended by itself; its handler and the "+
		"handler's stages get no more messages", Topic, Handler)
	// stop: Read the error; a connection may be left.
	StageNotClosed = event(isError, "stage_not_closed", "The subscriber of a stage topic cannot be closed", Handler,
		StageTopic)
	// once: Attach the channel to the router.
	StageUnprotected = event(isError, "stage_unprotected", "A handler with stages runs without Stages.Middleware, so "+
		"its messages do not wait in stages: Attach the channel to its router, or add the middleware with AddMiddleware of "+
		"what AddHandler returned",
		Topic, Handler)
	// each: Make the lease longer, if it goes on.
	DelayLeaseLost = event(isInfo, "delay_lease_lost",
		"A relay of the delay store lost a lease; the rest of the batch "+
			"is left to other relays")
	// each: Repair the topic, or its publisher.
	DelayRefused = event(isError, "delay_refused", "Messages out of the delay store are not published; they are tried "+
		"again later", Topic, MessageID, Messages)
	// each: nothing, unless it goes on
	DelayUnsettled = event(isInfo, "delay_unsettled", "A relay of the delay store cannot write down what became of "+
		"messages; other relays take them when the lease is over", "doing")
	// outage: Repair the database.
	DelayStoreAway = event(isError, "delay_store_away", "The delay store fails; messages wait until it answers")
	// outage: nothing
	DelayStoreBack = event(isInfo, "delay_store_back", "The delay store answers again")
)
