package logging

import "github.com/ThreeDotsLabs/watermill"

// Fields are the fields of a line. The values of metadata and payloads are never among them.
type Fields = watermill.LogFields

// The names of fields. One fact has one name, and a label of a metric has the same name and value.
const (
	EventName       = "event"    // the name of the Event, in each line
	Error           = "error"    // the text of an error, in lines that are no Error line
	Repeated        = "repeated" // of how many lines that were not written the line is one
	Topic           = "topic"
	Handler         = "handler"
	Class           = "class"
	Reason          = "reason"
	Stage           = "stage"
	CauseID         = "cause" // of letters, as redrive causes shows it
	Consumer        = "consumer"
	Store           = "store" // what is unavailable: a store or publisher of a part
	State           = "state"
	Traffic         = "traffic"
	To              = "to" // the budget's: to a stage, or wait
	MessageID       = "message_id"
	Attempt         = "attempt" // of the handler, or of a publisher
	Key             = "key"
	Hook            = "hook"
	Config          = "config" // the field of a configuration
	DeadLetterTopic = "dead_letter_topic"
	StageTopic      = "stage_topic"
	Failure         = "failure" // the text of the handler's error, where error is another
	Campaign        = "campaign"
	ConsumerGroup   = "consumer_group"
	Queue           = "queue"
	Partition       = "partition"
	Offset          = "offset"
	Letters         = "letters"
	Messages        = "messages"
	Wait            = "wait"
	Held            = "held"
	After           = "after" // how long it took
	Since           = "since"
	Policy          = "policy"
	CauseHash       = "cause"
)

// labels are the names whose values make a place: repeats are counted for each event and place. Each has few values; a
// place has no id.
var labels = [...]string{Topic, Handler, Class, Reason, Stage, Consumer, Store, State, Traffic, To, Hook, Config,
	DeadLetterTopic, StageTopic, Campaign, ConsumerGroup, Policy, Queue, Partition}

// freeText are the fields whose values are masked, as texts of errors are.
var freeText = map[string]bool{Reason: true, Error: true, Failure: true}
