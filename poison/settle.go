package poison

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/attempts"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/hold/placing"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/naming"
)

// interrupted settles a handler that did not return: after a panic that was not recovered further in, or
// runtime.Goexit, which ends the goroutine so that the router can neither ack nor nack.
func (q *Queue) interrupted(c *chain.Call, panicked any) ([]*message.Message, chain.Outcome) {
	if panicked != nil {
		return q.settleOrNack(c, chain.Outcome{Next: chain.Failed, Why: safecall.Panicked(panicked)})
	}
	goexit := classify.Permanent(errGoexit, classify.Reason(classify.ReasonGoexit))
	out, o := q.settleOrNack(c, chain.Outcome{Next: chain.Failed, Why: goexit})
	if o.Next == chain.Done {
		c.Msg.Ack()
	} else {
		c.Msg.Nack()
	}
	return out, o
}

// settleOrNack nacks if a publisher, mask or hook called runtime.Goexit: then nothing returns to the router.
func (q *Queue) settleOrNack(c *chain.Call, o chain.Outcome) (out []*message.Message, _ chain.Outcome) {
	returned := false
	defer func() {
		if !returned {
			c.Msg.Nack()
		}
	}()
	if o = q.settle(c, o); o.Next == chain.Done {
		var err error
		if s := c.Sequence(); s != nil {
			if out, err = s.Settle(c); err != nil {
				o = chain.OutcomeOf(err)
			}
		}
	}
	returned = true
	return out, o
}

var errGoexit = errors.New("the handler called runtime.Goexit")

// settle decides what becomes of a message that the parts further in gave up. No part further in has a next stage for
// it any more: it is dead-lettered.
func (q *Queue) settle(c *chain.Call, o chain.Outcome) chain.Outcome {
	if c.Nacked() { // on its way back already: placing it too would make two of it
		return o
	}
	c.Restore()
	if c.Left(o) {
		return chain.Gone(o.Why)
	}
	if c.Claimed() {
		q.misplaced.Do(func() {
			eventQueueMisplaced.Write(q.config.Logger, o.Why, nil)
		})
		return o
	}
	failure := attempts.Of(q.config.Classifier, o.Why)
	if failure.Verdict.Class != classify.ClassDiscard {
		placing.Begin(c.PlaceContext(), c.Msg)
		if c.Gone() { // while it waited for its turn
			return chain.Gone(o.Why)
		}
	}
	original := c.Original()
	original.SetContext(chain.WithTrace(c.PlaceContext(), c.Trace))
	err := q.place(c, original, failure)
	if chain.IsAborted(err) {
		return chain.Outcome{Next: chain.Requeue, Why: err}
	}
	return chain.OutcomeOf(err)
}

// Place dead-letters msg as the middleware does, for code that gives up on a message outside a handler. Topic and
// handler are those of the message's context. Waits between attempts end with the context. A nil error means that a
// publisher confirmed the letter, or that err is marked with classify.Discard.
func (q *Queue) Place(msg *message.Message, err error) error {
	if msg == nil {
		return errors.Join(errors.New("poison: Place: the message is nil"), err)
	}
	if err == nil {
		return errors.New("poison: Place: the error is nil: give the reason for the dead letter")
	}
	return q.place(nil, msg.CopyWithContext(), attempts.Of(q.config.Classifier, err))
}

// place owns msg. While all sinks are unavailable it holds the message of c, if there is one, and at last gives the
// message back.
func (q *Queue) place(c *chain.Call, msg *message.Message, failure *classify.Failure) error {
	ctx := msg.Context()
	source := naming.Source{
		Topic:   message.SubscribeTopicFromCtx(ctx),
		Handler: message.HandlerNameFromCtx(ctx),
		Class:   failure.Verdict.Class,
	}
	if source.Topic == "" { // used outside of a router
		source.Topic = "unknown"
	}
	deadLetter := q.config.Naming.IsDeadLetter(source.Topic) || q.isDeadLetter(msg, source.Topic)
	sinks := q.sinks(source, q.destination(source, deadLetter), deadLetter)
	subscriber := message.SubscriberNameFromCtx(ctx)
	l := q.letter(msg, failure, source, deadLetter)
	q.maskTexts(&l.Failure)
	q.maskMetadata(l.Original.Metadata)

	if failure.Verdict.Class == classify.ClassDiscard {
		q.log(eventDiscarded, failure, l)
		q.hook("OnDiscard", q.config.Hooks.OnDiscard, ctx, *l)
		return nil
	}
	publish := func() error {
		if err := q.seal(ctx, l); err != nil {
			return err
		}
		return q.publish(chain.Returning(ctx), l, source.Topic, sinks, subscriber)
	}
	var err error
	if c == nil {
		err = publish()
	} else if err = q.sink.Do(ctx, c, publish); err != nil && (chain.IsAborted(err) || c.Gone()) {
		q.unplaced(ctx, l, err)
		return chain.Aborted(errors.Join(err, failure))
	}
	if err != nil {
		fields := q.fields(l)
		fields[logging.Failure] = q.cause(failure, l)
		eventUnplaced.Write(q.config.Logger, err, fields)
		q.unplaced(ctx, l, err)
		if c != nil && errors.Is(err, errNoRoom) {
			timing.Wait(c.WaitContext(), min(noRoomPause, hold.Rest(c.WaitContext(), 0, c.Held())/2))
		}
		return errors.Join(failure, err)
	}
	chain.Placed(failure)
	q.log(eventDeadLettered, failure, l)
	q.hook("OnDeadLetter", q.config.Hooks.OnDeadLetter, ctx, *l)
	return nil
}

func (q *Queue) unplaced(ctx context.Context, l *Letter, err error) {
	if hook := q.config.Hooks.OnUnplaced; hook != nil {
		safecall.Hook(q.config.Logger, "poison.OnUnplaced", func() { hook(ctx, *l, q.config.Privacy.Error(err)) })
	}
}

// letter makes the letter of msg, which it owns. It masks no text.
func (q *Queue) letter(msg *message.Message, failure *classify.Failure, source naming.Source, deadLetter bool) *Letter {
	packed := msg.Metadata[KeyOriginalMetadata]
	var parked *message.Message
	if deadLetter {
		parked = msg.Copy()
	}
	added := writersOf(msg.Metadata)
	if deadLetter {
		added = writersOfLetter(msg.Metadata)
	}
	l := decode(msg, added)
	l.parked = parked
	l.Sealed = l.Sealed && deadLetter
	if deadLetter { // on a live topic it is the producer's word, and the letter is the message as it arrived
		l.unpack(packed)
	}
	q.fillOrigin(&l.Origin, msg, source, deadLetter)
	earlier := l.Failure
	l.fail(failure, q.config.Node)
	l.Failure.History = attempts.Latest(append(earlier.History, l.Failure.History...))
	if chain.ReentryOf(msg.Context()) != nil {
		l.Failure.goOn(earlier)
	}
	return l
}

// destination names the topic for a message that failed at source. A dead letter that fails in its own consumer is
// parked: it never becomes the dead letter of a dead letter.
func (q *Queue) destination(source naming.Source, deadLetter bool) string {
	if deadLetter {
		return q.config.Naming.ParkedTopic(source.Topic)
	}
	return q.config.Naming.DeadLetterTopic(source)
}

// isDeadLetter reports whether msg failed in a consumer of dead letters. The name of its topic shows that by itself,
// or, here, as the name for the letter's origin. Metadata alone does not make a live topic a dead-letter topic.
func (q *Queue) isDeadLetter(msg *message.Message, topic string) bool {
	if chain.ReentryOf(msg.Context()) != nil { // consumers of dead letters have no stages
		return false
	}
	l, err := Decode(msg)
	if err != nil {
		return false
	}
	named := q.config.Naming.DeadLetterTopic(naming.Source{Topic: l.Origin.Topic, Handler: l.Origin.Handler,
		Class: l.Failure.Class})
	return named == topic && l.Origin.Topic != topic
}

// fillOrigin completes what an earlier origin did not say. The first origin wins where it can be believed: on a dead
// letter, and on a message that is in its origin topic again. On any other it was forged, or a handler passed it on
// with what it produced; a redrive would send the message where it never was. Handler and group are those that failed
// now: a topic may have several, and each has letters of its own.
func (q *Queue) fillOrigin(origin *Origin, msg *message.Message, source naming.Source, deadLetter bool) {
	known := Origin{}
	if q.config.Origin != nil {
		if err := safecall.Call("poison.Origin",
			func() error { known = q.config.Origin(msg); return nil }); err != nil {
			eventOriginPanicked.Write(q.config.Logger, err, nil)
		}
		known.Timestamp = boundedtext.Moment(known.Timestamp)
	}
	switch {
	case deadLetter && origin.Topic != "":
	case origin.Topic != "" && origin.Topic == source.Topic && chain.ReentryOf(msg.Context()) != nil:
		// A position in a stage's topic does not say where the message came from.
	case origin.Topic == "" || origin.Topic != source.Topic:
		*origin = known
	default:
		origin.Handler, origin.ConsumerGroup = known.Handler, known.ConsumerGroup
		if q.config.Origin != nil { // a producer can write such metadata too, and a redrive publishes under this key
			origin.Key = known.Key
		}
	}
	if origin.Topic == "" {
		origin.Topic = source.Topic
	}
	if origin.Handler == "" {
		origin.Handler = source.Handler
	}
	if origin.MessageID == "" {
		origin.MessageID = msg.UUID
	}
}

func (q *Queue) hook(name string, hook func(context.Context, Letter), ctx context.Context, l Letter) {
	if hook != nil {
		safecall.Hook(q.config.Logger, "poison."+name, func() { hook(ctx, l) })
	}
}

// cause returns the error of the handler as a log line may have it: bounded and masked.
func (q *Queue) cause(failure *classify.Failure, l *Letter) error {
	if failure.Verdict.Description == "" { // then the letter has the text of the error, masked
		return logging.Cause(l.Failure.Description)
	}
	return q.causeOf(failure.Err)
}

// causeOf returns err as a log line may have it: the head of its text, masked.
func (q *Queue) causeOf(err error) error {
	return logging.Cause(q.config.Privacy.Text(textOf(err)))
}

// log writes a line about a letter. The fields are a good part of what a letter costs.
func (q *Queue) log(event *logging.Event, failure *classify.Failure, l *Letter) {
	line, due := event.At(q.config.Logger, l.Origin.Topic, l.Origin.Handler, l.Failure.Class.String(), l.Failure.Reason,
		l.DeadLetterTopic)
	if due {
		line.Write(q.cause(failure, l), q.fields(l))
	}
}

// fields are those of a log line about a letter: never its payload.
func (q *Queue) fields(l *Letter) logging.Fields {
	return logging.Fields{
		logging.MessageID:       l.Original.UUID,
		logging.Topic:           l.Origin.Topic,
		logging.Handler:         l.Origin.Handler,
		logging.DeadLetterTopic: l.DeadLetterTopic,
		logging.Class:           l.Failure.Class.String(),
		logging.Reason:          l.Failure.Reason,
		logging.Attempt:         l.Failure.Attempts,
	}
}

// A message fails.
var (
	// each: Repair the cause, and redrive: docs/incidents.md.
	eventDeadLettered = logging.ErrorEvent("dead_lettered", "Message dead-lettered")
	// each: nothing
	eventDiscarded = logging.InfoEvent("discarded", "Message discarded, because its error is marked so")
	// each: Repair the publisher; the message comes again.
	eventUnplaced = logging.ErrorEvent("unplaced", "All publishers refused the dead letter; the message is nacked")
	// each: See `unplaced` or `letter_raw`, if one follows.
	eventLetterRefused = logging.ErrorEvent("letter_refused", "A dead letter was refused")
	// each: See to the KMS or keys: docs/sealing.md.
	eventLetterNotSealed = logging.ErrorEvent("letter_not_sealed",
		"A dead letter cannot be sealed; nothing is published, and its message is held or nacked")
	// each: nothing
	eventLetterPublisherUnavailable = logging.DebugEvent("letter_publisher_unavailable",
		"The publisher of dead letters is unavailable")
	// each: Look why it was refused; raw letters can be redriven.
	eventLetterRaw = logging.ErrorEvent("letter_raw",
		"The dead letter was refused for its content; it is published in its raw form")
	// each: Give `QueueConfig.Fallbacks` a larger sink.
	eventLetterPlain = logging.ErrorEvent("letter_plain",
		"No dead letter fits beside its message; the message is published as it came, and its story is in this log "+
			"alone. For letters of such messages give QueueConfig.Fallbacks a sink that takes larger ones").Always()
	// once: Put the queue outside of the receiver, once.
	eventQueueMisplaced = logging.ErrorEvent("queue_misplaced",
		"The queue stands inside an idempotent receiver, or is attached twice; it passes errors on")
	// once: Create the topic.
	eventLetterTopicMissing = logging.ErrorEvent("letter_topic_missing",
		"The dead-letter topic may be missing; its first letter is published anyway")
)

// Functions of yours.
var (
	// each: Repair the mask.
	eventMaskPanicked = logging.ErrorEvent("mask_panicked", "A mask panicked; the value is withheld")
	// each: Repair the function.
	eventOriginPanicked = logging.ErrorEvent("origin_panicked",
		"QueueConfig.Origin panicked; the letter has the origin that the router knows")
)
