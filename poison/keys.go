package poison

import (
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/deadletter"
)

// The metadata keys of a dead letter. Values are UTF-8 text; what is not is base64 under the key with Base64Suffix.
const (
	// Origin: where the message first came from, if its metadata can be trusted. Handler and consumer group are those
	// of the latest failure; a parked letter keeps its own.
	KeyOriginalTopic     = "x-original-topic"
	KeyOriginalPartition = "x-original-partition"
	KeyOriginalOffset    = "x-original-offset"
	KeyOriginalTimestamp = "x-original-timestamp"
	KeyOriginalKey       = "x-original-key"
	KeyOriginalMessageID = "x-original-message-id"
	KeyOriginalHandler   = "x-original-handler"
	KeyOriginalGroup     = "x-original-consumer-group"
	// How AMQP routed it, which the name of a queue does not show.
	KeyOriginalExchange   = "x-original-exchange"
	KeyOriginalRoutingKey = "x-original-routing-key"

	// KeyOriginalMetadata holds the producer's id and metadata, packed, if a sink refused the letter because of them.
	// Decode and Read unpack it.
	KeyOriginalMetadata = "x-original-metadata" + Base64Suffix
	// How many bytes of metadata were left out because a sink refused even that.
	keyDropped = "x-original-metadata-dropped"

	// Failure: why the message was dead-lettered, the latest time.
	KeyFailureClass       = "x-failure-class"
	KeyFailureReason      = "x-failure-reason"
	KeyFailureDescription = "x-failure-description"
	KeyFailureType        = "x-failure-type"
	KeyFailureStack       = "x-failure-stack"
	KeyFailureStackHash   = "x-failure-stack-hash"
	KeyFailureNode        = "x-failure-node"

	// KeySealed says that the payload is an envelope of package seal, with the payload and metadata of the producer.
	// Its value is the version of that, 1.
	KeySealed = "x-sealed"

	// Attempts: how often it was tried since it was published or redriven. An attempt that ended before the handler
	// counts too.
	KeyAttempts       = "x-attempts"
	KeyFirstFailedAt  = "x-first-failed-at"
	KeyLastFailedAt   = "x-last-failed-at"
	KeyAttemptHistory = "x-attempt-history"

	// Stage: which retry stage the message waits in, and until when.
	KeyRetryStage = "x-retry-stage"
	KeyRetryDueAt = "x-retry-due-at"
	// Until when the message is held in its place. Then it goes to the end of its stage. Only if that is before it is
	// due.
	KeyRetryHoldUntil = "x-retry-hold-until"
	// Which publishing to a stage topic it is. A message with the same value is a copy that the broker delivered again.
	KeyRetryEntry = "x-retry-entry"

	// KeyEarlierTrace is the observe.Tracer's text for the operation that brought the message here: into its stage,
	// among the dead letters, or back.
	KeyEarlierTrace = "x-earlier-trace"

	// Redrive: how often, when, by whom and in which campaign the message came back.
	KeyRedriveCount = chain.KeyRedriveCount
	KeyRedrivenAt   = "x-redriven-at"
	KeyRedrivenBy   = "x-redriven-by"
	KeyRedriveID    = "x-redrive-id"
	// KeyRedrivenLetter is the Letter.Identity of the letter that the message was brought back from. A letter of the
	// message that fails again carries it, so that the letter is known whose redrive failed, also if the message has no
	// id.
	KeyRedrivenLetter = "x-redriven-letter"

	// Base64Suffix ends the key of a value that is not text.
	Base64Suffix = "-b64"
)

// The keys of Watermill's own PoisonQueue middleware. They are read too and, with WatermillKeys, written beside
// Spillway's.
const (
	keyWatermillReason     = "reason_poisoned"
	keyWatermillTopic      = "topic_poisoned"
	keyWatermillHandler    = "handler_poisoned"
	keyWatermillSubscriber = "subscriber_poisoned"
)

// writers is a set of programs that add metadata to a dead letter.
type writers uint8

const (
	byUs writers = 1 << iota // and by Watermill's PoisonQueue
	bySpring
	byConnect
	byStreams
	byShare
	byRabbit // see foreign.go
	byMark   // such a key alone shows that its writer was there
)

// ours are the keys that a decoded letter's original does not carry, and whose they are. A producer's other x- keys are
// its own.
var ours = func() map[string]writers {
	set := make(map[string]writers)
	add := func(w writers, keys ...string) {
		for _, key := range keys {
			set[key] |= w
			set[key+Base64Suffix] |= w
		}
	}
	add(byUs|byMark,
		KeyOriginalTopic, KeyOriginalPartition, KeyOriginalOffset, KeyOriginalTimestamp, KeyOriginalKey,
		KeyOriginalMessageID, KeyOriginalHandler, KeyOriginalGroup, KeyOriginalExchange, KeyOriginalRoutingKey,
		KeyOriginalMetadata, keyDropped,
		KeyFailureClass, KeyFailureReason, KeyFailureDescription, KeyFailureType, KeyFailureStack, KeyFailureStackHash,
		KeyFailureNode, KeyAttempts, KeyFirstFailedAt, KeyLastFailedAt, KeyAttemptHistory,
		KeyRetryStage, KeyRetryDueAt, KeyRetryHoldUntil, KeyRetryEntry, KeyRedriveCount, KeyRedrivenAt, KeyRedrivenBy,
		KeyRedriveID,
		KeyRedrivenLetter, KeyEarlierTrace, KeySealed)
	for _, prefix := range []string{"kafka_dlt-", "kafka_"} {
		for _, key := range []string{
			"original-topic", "original-partition", "original-offset", "original-timestamp", "original-timestamp-type",
			"exception-fqcn", "exception-cause-fqcn", "exception-message", "exception-stacktrace",
			"key-exception-fqcn", "key-exception-message", "key-exception-stacktrace",
		} {
			add(bySpring, prefix+key)
		}
	}
	add(bySpring, springGroup, springDelivery, springAttempts, springDue, "retry_topic-original-timestamp")
	for _, key := range []string{
		"topic", "partition", "offset", "connector.name", "task.id", "stage", "class.name",
		"exception.class.name", "exception.message", "exception.stacktrace",
	} {
		add(byConnect, "__connect.errors."+key)
	}
	for _, key := range []string{"exception", "message", "stacktrace", "topic", "partition", "offset"} {
		add(byStreams, "__streams.errors."+key)
	}
	for _, key := range []string{"topic", "partition", "offset", "group", "delivery.count", "message"} {
		add(byShare, "__dlq.errors."+key)
	}
	for _, key := range []string{"queue", "reason", "exchange"} {
		add(byRabbit, "x-first-death-"+key, "x-last-death-"+key)
	}
	add(byRabbit, keyDeaths)
	for _, key := range foreignMarks {
		set[key] |= byMark
	}
	for _, key := range []string{
		deadletter.KeyMarked, keyWatermillReason, keyWatermillTopic, keyWatermillHandler, keyWatermillSubscriber,
	} {
		set[key] = byUs | byMark
	}
	return set
}()
