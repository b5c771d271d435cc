package poison

// The metadata keys of a dead letter. Values are UTF-8 text; what is not is base64 under the key with Base64Suffix.
const (
	// Origin: where the message first came from. Set once, never overwritten.
	KeyOriginalTopic     = "x-original-topic"
	KeyOriginalPartition = "x-original-partition"
	KeyOriginalOffset    = "x-original-offset"
	KeyOriginalTimestamp = "x-original-timestamp"
	KeyOriginalKey       = "x-original-key"
	KeyOriginalMessageID = "x-original-message-id"
	KeyOriginalHandler   = "x-original-handler"
	KeyOriginalGroup     = "x-original-consumer-group"
	// Where AMQP routed it: what a queue's name does not tell.
	KeyOriginalExchange   = "x-original-exchange"
	KeyOriginalRoutingKey = "x-original-routing-key"

	// Failure: why the message was set aside, the latest time.
	KeyFailureClass       = "x-failure-class"
	KeyFailureReason      = "x-failure-reason"
	KeyFailureDescription = "x-failure-description"
	KeyFailureType        = "x-failure-type"
	KeyFailureStack       = "x-failure-stack"
	KeyFailureStackHash   = "x-failure-stack-hash"
	KeyFailureNode        = "x-failure-node"

	// Attempts: handler invocations since the message was published or redriven.
	KeyAttempts       = "x-attempts"
	KeyFirstFailedAt  = "x-first-failed-at"
	KeyLastFailedAt   = "x-last-failed-at"
	KeyAttemptHistory = "x-attempt-history"

	// Stage: which retry stage the message waits in, and until when.
	KeyRetryStage = "x-retry-stage"
	KeyRetryDueAt = "x-retry-due-at"

	// Redrive: how often, when, by whom and in which campaign the message came back.
	KeyRedriveCount = "x-redrive-count"
	KeyRedrivenAt   = "x-redriven-at"
	KeyRedrivenBy   = "x-redriven-by"
	KeyRedriveID    = "x-redrive-id"

	// Base64Suffix ends the key of a value that is not text.
	Base64Suffix = "-b64"
)

// The keys of Watermill's own PoisonQueue middleware, which are read too and, on request, written beside ours.
const (
	keyWatermillReason     = "reason_poisoned"
	keyWatermillTopic      = "topic_poisoned"
	keyWatermillHandler    = "handler_poisoned"
	keyWatermillSubscriber = "subscriber_poisoned"
)

// ours are the keys that a decoded letter's original does not carry. A producer's other x- keys are its own.
var ours = func() map[string]struct{} {
	set := make(map[string]struct{})
	for _, key := range []string{
		KeyOriginalTopic, KeyOriginalPartition, KeyOriginalOffset, KeyOriginalTimestamp, KeyOriginalKey,
		KeyOriginalMessageID, KeyOriginalHandler, KeyOriginalGroup, KeyOriginalExchange, KeyOriginalRoutingKey,
		KeyFailureClass, KeyFailureReason, KeyFailureDescription, KeyFailureType, KeyFailureStack, KeyFailureStackHash,
		KeyFailureNode, KeyAttempts, KeyFirstFailedAt, KeyLastFailedAt, KeyAttemptHistory,
		KeyRetryStage, KeyRetryDueAt, KeyRedriveCount, KeyRedrivenAt, KeyRedrivenBy, KeyRedriveID,
	} {
		set[key] = struct{}{}
		set[key+Base64Suffix] = struct{}{}
	}
	set[keyUnreadable] = struct{}{}
	for _, key := range []string{keyWatermillReason, keyWatermillTopic, keyWatermillHandler, keyWatermillSubscriber} {
		set[key] = struct{}{}
	}
	return set
}()
