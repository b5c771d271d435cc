// Package observe is the wall between the parts of Spillway and what follows them: a part begins an operation, and ends
// it.
//
// A Tracer is called around each attempt of a handler, and around each publishing of Spillway's own. Package
// observe/telemetry has the Tracer for OpenTelemetry. Config.Tracer of a spillway.Channel gives a Tracer to all parts.
package observe

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
)

// Tracer follows operations. Its methods are called in the goroutine of the message, and must be quick. A Tracer that
// panics is logged, and the message goes on without it. It must be safe for concurrent use.
type Tracer interface {
	// Begin is called before an operation. The handler or publisher works in the context that Begin returns, which must
	// be ctx or made of ctx. If it returns nil, the operation is not followed, and the other methods are not called for
	// it.
	Begin(ctx context.Context, op Operation) context.Context
	// End is called after the operation, with the context that Begin returned. It is called after a panic and
	// runtime.Goexit too.
	End(ctx context.Context, op Operation, end Ending)
	// Trace returns a text that identifies the operation of the context that Begin returned, or "". A message that the
	// operation publishes carries the text as x-earlier-trace. Up to 4 KiB of one line are kept.
	Trace(ctx context.Context) string
}

// Kind says what an operation does.
type Kind uint8

const (
	// Attempt is one call of a handler, with the idempotent receiver around it.
	Attempt Kind = iota
	// Stage publishes a message to a retry stage, or puts it into the delay store.
	Stage
	// DeadLetter publishes a dead letter.
	DeadLetter
	// Redrive publishes the message of a letter again.
	Redrive
	// Park publishes a message of a dead-letter topic to where it is kept: the parked or the quarantine topic.
	Park
	// Settle marks a letter in the dead-letter store, after a drain published its message or gave the letter up.
	Settle
)

// Operation is what begins. Fields that a kind does not name are empty.
type Operation struct {
	Kind Kind
	// Topic and Handler are the live topic of the message, and its handler. Those of a letter are its origin's.
	Topic, Handler string
	// To is the topic that is published to, or of Settle the dead-letter topic.
	To string
	// Client is what the operation publishes with: a message.Publisher or a store. It is nil for an Attempt.
	Client any
	// ID is the id of the message as it arrived.
	ID string
	// Message is the message. Of an Attempt it is the one that the handler gets, and may change, of all others as it
	// arrived or waited.
	Message *message.Message
	// Number counts the attempts of the handler since the message was delivered, from 1. It is 0 if the parts are
	// attached one by one. For a publishing it counts the calls of the publisher.
	Number int
	// Stage is the number of the stage that the message goes to, or that an Attempt's message came out of. The first is
	// 1, and 0 is none.
	Stage int
	// Redrives counts the redrives of the message. For Redrive, the one that begins is counted.
	Redrives int
	// Attempts and Verdict say why the message goes to a stage, or is a dead letter.
	Attempts int
	Verdict  classify.Verdict
	// Outcome says what becomes of the letter of Settle, such as "redriven".
	Outcome string
	// Letter is the poison.Letter of DeadLetter, Redrive, Park and Settle.
	Letter any
	// Parent is the Trace of what the operation is a step of, in the same process: of the attempt that led to a
	// publishing, of the caller of a drain, or of the redrive that a Settle ends. It is "" if there is none.
	Parent string
	// Earlier is the Trace of an operation that led to this one, maybe a wait ago: of the attempt before an Attempt in
	// the same delivery, of what published the message to where it waited. It can be forged.
	Earlier string
}

// Ending is how an operation ended.
type Ending struct {
	// Err is nil for a success. Its text may have secrets.
	Err error
	// Verdict is on the error of an Attempt. Its class is ClassAborted if the message went away.
	Verdict classify.Verdict
	// Text is the text of Err as it may be shown: cut, and without secrets. It is "" if the part has no rules for that.
	Text string
}
