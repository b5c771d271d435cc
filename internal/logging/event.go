package logging

import (
	"slices"
	"strconv"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-spillway/spillway/internal/boundedtext"
)

// An Event is a kind of log line: its level and its text. All events of the library are declared in this
// package, and docs/events.md has a row for each.
type Event struct {
	name  any // a string, boxed once
	level watermill.LogLevel
	text  string
	each  bool // no line is left out
}

var events []*Event

// Events returns all events, in the order of their declaration.
func Events() []*Event { return slices.Clone(events) }

// Name returns the value of the field event.
func (e *Event) Name() string { return e.name.(string) }

// Level returns the level of the event's lines.
func (e *Event) Level() watermill.LogLevel { return e.level }

// Text returns the message of the event's lines.
func (e *Event) Text() string { return e.text }

func event(level watermill.LogLevel, name, text string) *Event {
	e := &Event{name: name, level: level, text: text}
	events = append(events, e)
	return e
}

// always makes an event whose lines are all written, because what they say is nowhere else.
func (e *Event) always() *Event {
	e.each = true
	return e
}

// Write writes a line, or counts it among the repeats of its place. err may be nil.
func (e *Event) Write(logger watermill.LoggerAdapter, err error, fields Fields) {
	if IsSilent(logger) {
		return
	}
	writeMisses(logger)
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
		l.log.core.keep(l.place, of)
		return
	}
	if !l.log.core.write(of) {
		l.log.core.countBack(l.place, of, 1)
	}
}

// The events are in failing.go and returning.go. The comment of each begins with when a line comes: each time, message
// or try; once for what the fields name; outage, once an outage; start or stop of the router. What to do follows.

// The levels of events. An operator must act on an Error line. What the service does by itself is an Info line, or a
// Debug line if it is part of its daily work. An outage is one Error line when it begins, and one Info line when it
// ends.
const (
	isError = watermill.ErrorLogLevel
	isInfo  = watermill.InfoLogLevel
	isDebug = watermill.DebugLogLevel
)

// Cause returns an error with the head of text. Mask text before: a cut first can leave half of a secret. The error
// does not wrap the original, whose text is not masked.
func Cause(text string) error { return masked(boundedtext.Text(text, maxError)) }

// masked is an error whose text is masked.
type masked string

func (m masked) Error() string { return string(m) }
