package telemetry

import (
	"reflect"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"

	"github.com/watermill-spillway/spillway/observe"
)

// The attributes that the conventions of OpenTelemetry lack. They have the names and values of the metrics and of the log's fields.
const (
	operationKey = attribute.Key("spillway.operation")
	topicKey     = attribute.Key("spillway.topic")
	handlerKey   = attribute.Key("spillway.handler")
	outcomeKey   = attribute.Key("spillway.outcome")
	classKey     = attribute.Key("spillway.class")
	reasonKey    = attribute.Key("spillway.reason")
	causeKey     = attribute.Key("spillway.cause")
	stageKey     = attribute.Key("spillway.stage")
	attemptKey   = attribute.Key("spillway.attempt")
	attemptsKey  = attribute.Key("spillway.attempts")
	redrivesKey  = attribute.Key("spillway.redrive.count")
)

// operations are the values of spillway.operation.
var operations = map[observe.Kind]string{
	observe.Attempt: "attempt", observe.Stage: "stage", observe.DeadLetter: "dead_letter", observe.Redrive: "redrive", observe.Park: "park", observe.Settle: "settle",
}

const (
	maxValue = 200 // of what a message or an application names, in characters
	maxText  = 1 << 10
)

// clean makes a value that each exporter takes: few characters, UTF-8, one line.
func clean(value string) string {
	for i := range len(value) {
		if c := value[i]; i >= maxValue || c < ' ' || c >= utf8.RuneSelf || c == 0x7f {
			return cut(value, maxValue)
		}
	}
	return value
}

// cut returns the first characters of value, with other characters than those of text replaced.
func cut(value string, most int) string {
	n := 0
	var b strings.Builder
	for _, r := range value {
		if n++; n > most {
			break
		}
		if r < ' ' || r == 0x7f {
			r = utf8.RuneError
		}
		b.WriteRune(r)
	}
	return b.String()
}

// wrappers are the types of errors that say nothing of their own.
var wrappers = map[string]bool{"*errors.joinError": true, "*classify.marked": true, "*classify.Failure": true, "*privacy.maskedError": true}

// errorType returns the type of err without the wrappers of fmt and errors, and without marks, failures and masks of Spillway.
func errorType(err error) (name string) {
	defer func() { // an Unwrap that panics ends the search
		if recover() != nil && name == "" {
			name = "_OTHER"
		}
	}()
	for depth := 0; err != nil && depth < 16; depth++ {
		name = reflect.TypeOf(err).String()
		if !strings.HasPrefix(name, "*fmt.wrapError") && !wrappers[name] {
			break
		}
		switch x := err.(type) {
		case interface{ Unwrap() error }:
			err = x.Unwrap()
		case interface{ Unwrap() []error }:
			causes := x.Unwrap()
			if len(causes) == 0 {
				return name
			}
			err = causes[0]
		default:
			return name
		}
	}
	return name
}
