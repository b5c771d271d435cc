package telemetry

import (
	"reflect"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.27.0"

	"github.com/watermill-spillway/spillway/internal/errs/causes"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/observe/internal/few"
)

// The attributes that the conventions of OpenTelemetry lack. They have the names and values of the metrics and of the
// log's fields.
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

// operationTypeSend is what newer conventions call the type "publish". An older semconv keeps the versions that users
// need low.
var operationTypeSend = semconv.MessagingOperationTypeKey.String("send")

// operations are the values of spillway.operation.
var operations = map[observe.Kind]string{
	observe.Attempt: "attempt", observe.Stage: "stage", observe.DeadLetter: "dead_letter", observe.Redrive: "redrive",
	observe.Park: "park", observe.Settle: "settle",
}

const (
	maxValues = 200 // of each attribute of an instrument; all others are "other"
	maxValue  = 200 // of what a message or an application names, in characters
	maxText   = 1 << 10
	maxDepth  = 16 // of causes
)

// clean makes a value that each exporter takes: few characters, UTF-8, one line.
func clean(value string) string { return few.Text(value, maxValue) }

// wrappers are the types of errors that say nothing of their own.
var wrappers = map[string]bool{"*errors.joinError": true, "*classify.marked": true, "*classify.Failure": true,
	"*privacy.maskedError": true}

// errorType returns the type of err without the wrappers of fmt and errors, and without marks, failures and masks of
// Spillway.
func errorType(err error) (name string) {
	depth := 0
	for one := range causes.First(err) {
		name = reflect.TypeOf(one).String()
		if depth++; depth == maxDepth || !strings.HasPrefix(name, "*fmt.wrapError") && !wrappers[name] {
			break
		}
	}
	return name
}
