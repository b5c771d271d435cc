package logging

import (
	"strconv"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/upstream/foreign"
)

// An Event is a kind of log line: its level and its text. A package declares its events itself, those of several
// packages are below, and docs/events.md has a row for each. The comment of an event begins with when a line comes: each
// time, message or try; once for what the fields name; outage, once an outage; start or stop of the router. What to do
// follows.
type Event struct {
	name  any // a string, boxed once
	level watermill.LogLevel
	text  string
	each  bool // no line is left out
}

// Name returns the value of the field event.
func (e *Event) Name() string { return e.name.(string) }

// ErrorEvent makes an event that an operator must act on, such as the begin of an outage.
func ErrorEvent(name, text string) *Event {
	return &Event{name: name, level: watermill.ErrorLogLevel, text: text}
}

// InfoEvent makes an event that the service deals with by itself, such as the end of an outage.
func InfoEvent(name, text string) *Event {
	return &Event{name: name, level: watermill.InfoLogLevel, text: text}
}

// DebugEvent makes an event of the service's daily work.
func DebugEvent(name, text string) *Event {
	return &Event{name: name, level: watermill.DebugLogLevel, text: text}
}

// Always makes an event whose lines are all written, because what they say is nowhere else.
func (e *Event) Always() *Event {
	e.each = true
	return e
}

// Begin says that a router begins. It writes what was met of other modules that is not as the library knows it, each
// once in a process. The next line of any event writes it too.
func Begin(logger watermill.LoggerAdapter) {
	if IsSilent(logger) {
		return
	}
	for _, miss := range foreign.Take() {
		ForeignUnknown.Write(logger, nil, Fields{"of": miss.Of, "unknown": miss.What})
	}
}

// Write writes a line, or counts it among the repeats of its place. err may be nil.
func (e *Event) Write(logger watermill.LoggerAdapter, err error, fields Fields) {
	if IsSilent(logger) {
		return
	}
	Begin(logger)
	inherited := of(logger).fields
	var room [len(labels)]string
	for i, name := range labels {
		value, ok := fields[name]
		if !ok {
			value = inherited[name]
		}
		room[i], _ = value.(string)
		if number, is := value.(int); is {
			room[i] = strconv.Itoa(number)
		}
	}
	if line, due := e.At(logger, room[:]...); due {
		line.Write(err, fields)
	}
}

// At is Write for lines that come often: it returns false if the line is but counted, so that its fields need not be
// built. The place has the values of the fields that are labels. An event is written with At or with Write, not both.
func (e *Event) At(logger watermill.LoggerAdapter, place ...string) (Line, bool) {
	if IsSilent(logger) {
		return Line{}, false
	}
	log := of(logger)
	var room [256]byte
	key := append(room[:0], e.Name()...)
	for _, v := range place {
		key = append(append(key, 0), clean(v)...)
	}
	p, written := log.core.take(e, key)
	return Line{log, e, p, written}, written || p != nil
}

// A Line is to be written, or shown as the example of those that are counted.
type Line struct {
	log     *Log
	event   *Event
	place   *place
	written bool
}

// Write completes the line. err may be nil.
func (l Line) Write(err error, fields Fields) {
	of := l.log.core.entry(l.event, err, l.log.with(fields))
	if !l.written {
		l.log.core.count(l.place, of, 0)
	} else if !l.log.core.writer.write(of) {
		l.log.core.count(l.place, of, 1)
	}
}

// Cause returns an error with the head of text. Mask text before: a cut first can leave half of a secret. The error
// does not wrap the original, whose text is not masked.
func Cause(text string) error { return masked(boundedtext.Text(text, maxError)) }

// CauseOf is Cause with the text of err, bounded and masked.
func CauseOf(err error, mask func(string) string) error {
	return Cause(mask(boundedtext.Error(err, maxMasked)))
}

// masked is an error whose text is masked.
type masked string

func (m masked) Error() string { return string(m) }

// Other modules.
var (
	// once: Upgrade Spillway, or keep the module's older version.
	ForeignUnknown = InfoEvent("foreign_unknown",
		"Something of another module is not as the library knows it, so a check or a bound that depends on it may be "+
			"missing")
)

// Functions of yours.
var (
	// each: Repair the hook.
	HookPanicked = ErrorEvent("hook_panicked", "A hook panicked; the message goes on without it")
	// each: Repair the function.
	ReentryPanicked = ErrorEvent("reentry_panicked", "ReentryTopic panicked; the letter goes to its origin topic")
)

// Stages and the delay store.
var (
	// each: Repair the database. The partition waits.
	SequencesUnavailable = ErrorEvent("sequences_unavailable",
		"Parked messages cannot be read or written; their partition waits")
	// start: Read the error; messages may wait in a removed stage.
	StageSearchFailed = ErrorEvent("stage_search_failed", "The search for messages in removed stages failed")
)

// Redrives, letters and campaigns.
var (
	// each: Read the error; the letter waits.
	RedriveRefused = ErrorEvent("redrive_refused", "A letter is not redriven")
	// each: Add the key that the error names: docs/sealing.md.
	RedriveClosed = ErrorEvent("redrive_closed", "A sealed letter does not open; it is not redriven")
	// each: nothing, unless it goes on
	LettersNotRenewed = InfoEvent("letters_not_renewed",
		"The leases of letters were not renewed; the next try is in a third of a lease")
	// each: Read the error: database, `Config.Access`, `Config.Breakers`, or a slow query.
	ConsoleFailed = ErrorEvent("console_failed", "The console could not answer a request")
)

// Adapters for Kafka, RabbitMQ and SQL.
var (
	// each: nothing
	SessionEnded = DebugEvent("session_ended",
		"The group session ended before the message was settled; it will be redelivered")
	// stop: Let handlers end with their context.
	SubscriptionCut = ErrorEvent("subscription_cut", "A subscription did not end in time; its connections are cut")
	// each: nothing, unless `lasted` is long: a member leaves late
	SessionAgain = InfoEvent("session_again",
		"A group session ended and the next one began; no message was delivered in between")
)
