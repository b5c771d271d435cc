package poison

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/traced"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hold/outage"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/timing"
	"github.com/watermill-spillway/spillway/internal/upstream/destination"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/observe"
)

// sinks lists where a letter may go, best first: its topic; for an invalid message the topic of all the others; then
// the fallbacks. A dead letter that is parked has no topic of all the others. A sink that writes into the letter's own
// source is left out.
func (q *Queue) sinks(source naming.Source, topic string, deadLetter bool) []Sink {
	sinks := make([]Sink, 0, 2+len(q.config.Fallbacks))
	if q.through[0] != source.Topic {
		sinks = append(sinks, Sink{q.publisher, topic})
		if source.Class == classify.ClassInvalid && !deadLetter {
			source.Class = classify.ClassPermanent
			if other := q.config.Naming.DeadLetterTopic(source); other != topic {
				sinks = append(sinks, Sink{q.publisher, other})
			}
		}
	}
	for i, sink := range q.config.Fallbacks {
		if q.through[i+1] == source.Topic {
			continue
		}
		if sink.Topic == "" {
			sink.Topic = topic
		}
		sinks = append(sinks, sink)
	}
	return sinks
}

// circle is the error of a letter that has no sink but those that write into its own source: each time it came back, it
// would be dead-lettered again, wrapped once more.
func (q *Queue) circle(source string) error {
	return fmt.Errorf("poison: dead letters of %q would come back to it: their publisher is a forwarder.Publisher that "+
		"writes into %[1]q; give the forwarder's router a queue with another publisher, or this one a fallback",
		logged(source))
}

// refusal is what a sink's last error says of the letter.
type refusal uint8

const (
	forNow  refusal = iota // it may be taken another time
	forGood                // it is refused for what it is
	forSize                // it is too large
)

// publish places the letter in the first sink that takes it and sets its Topic. Sinks that refused the letter for what
// it is are then offered less of it: first all of it in a form that any sink takes, then without the producer's
// metadata. If they have no room for any letter, they are offered the message as it came. The error joins what every
// sink said.
func (q *Queue) publish(ctx context.Context, l *Letter, source string, sinks []Sink, subscriber string) error {
	if len(sinks) == 0 {
		return q.circle(source)
	}
	ready := q.makeReady(source, sinks)
	var refusals []error
	tooLarge := true // for each sink, in each form
	for form := whole; form <= plain && len(sinks) > 0; form++ {
		if form == packed && packMetadata(l.Original.UUID, l.Original.Metadata, maxPacked) == "" {
			continue
		}
		var refused []Sink
		for i, sink := range sinks {
			why, err := q.publishTo(ctx, sink, l, form, q.encoder(l, form, subscriber))
			if err == nil {
				q.logForm(l, sink, form, refusals)
				l.DeadLetterTopic = sink.Topic
				if !ready && i == 0 && form == whole {
					q.ready.Store(sink.Topic, nil)
				}
				return nil
			}
			refusals = append(refusals, err)
			// the message went away; after a mere deadline each sink has its try
			if errors.Is(ctx.Err(), context.Canceled) {
				return errors.Join(refusals...)
			}
			tooLarge = tooLarge && why != forNow && (form < bare || why == forSize)
			if why == forSize || why == forGood && form < bare {
				refused = append(refused, sink)
			}
		}
		sinks = refused
	}
	if tooLarge {
		refusals = append([]error{errNoRoom}, refusals...)
	}
	return errors.Join(refusals...)
}

// logForm logs that a letter is placed with less than all of it.
func (q *Queue) logForm(l *Letter, sink Sink, form rawForm, refusals []error) {
	if form == whole {
		return
	}
	event := eventLetterRaw
	if form == plain {
		event = eventLetterPlain
	}
	fields := q.fields(l)
	fields[logging.DeadLetterTopic], fields["form"] = sink.Topic, form.String()
	event.Write(q.config.Logger, errors.Join(refusals...), fields)
}

// encoder returns what encodes l in a form, for a context and its trace. Values of the context go along, for publishers
// that join a transaction; the end of the source's context does not, because some pub/subs hand contexts on to the
// consumer.
func (q *Queue) encoder(l *Letter, form rawForm,
	subscriber string) func(context.Context, string, limits) *message.Message {
	return func(ctx context.Context, trace string, limits limits) *message.Message {
		var msg *message.Message
		l := l
		if trace != "" {
			own := *l
			own.Trace = trace
			l = &own
		}
		switch form {
		case whole:
			msg = l.encode(limits)
			if q.config.WatermillKeys && limits.total > leastLimits.total {
				l.addWatermill(msg, subscriber, limits)
			}
		case plain:
			msg = l.plain()
		default:
			msg = l.raw(form, limits.total)
		}
		msg.SetContext(ctx)
		return msg
	}
}

// publishTo tries one sink. After refusals for size it offers less and less of the letter. It reports whether the sink
// refuses the letter for what it is, and so each time.
func (q *Queue) publishTo(ctx context.Context, sink Sink, l *Letter, form rawForm,
	encoded func(context.Context, string, limits) *message.Message) (why refusal, err error) {
	steps, sizeRefusals := q.limits.shrinking(form), 0
	var waits backoff.BackOff
	for attempt := 1; ; attempt++ {
		err := q.traced().PublishMasked(context.WithoutCancel(ctx), q.operation(ctx, sink, l, attempt), q.shown,
			func(in context.Context, trace string) error {
				msg := encoded(in, trace, steps[sizeRefusals])
				return safecall.Call("publisher", func() error { return offer(sink.Publisher, sink.Topic, msg) })
			})
		if err == nil {
			return forNow, nil
		}
		err = fmt.Errorf("poison: publish to %q: %w", logged(sink.Topic), err)
		if hook := q.config.Hooks.OnPublishError; hook != nil {
			safecall.Hook(q.config.Logger, "poison.OnPublishError", func() {
				hook(ctx, *l, q.config.Privacy.Error(err))
			})
		}
		fields := logging.Fields{logging.Attempt: attempt, logging.DeadLetterTopic: sink.Topic}
		if outage.Unavailable(err) { // the outage is logged once
			eventLetterPublisherUnavailable.Write(q.config.Logger, nil, fields)
		} else {
			eventLetterRefused.Write(q.config.Logger, err, fields)
		}
		if destination.IsRefused(err) {
			return forGood, err
		}
		if q.config.Classifier.IsTooLarge(err) {
			if sizeRefusals++; sizeRefusals < len(steps) {
				continue // size does not pass with time: no wait
			}
			return forSize, err
		}
		if waits == nil {
			waits = q.waits()
		}
		if attempt-sizeRefusals >= q.config.PublishAttempts || !timing.Wait(ctx, waits.NextBackOff()) {
			if q.refusedAlways(err) {
				return forGood, err
			}
			return forNow, err
		}
	}
}

// waits are those between attempts.
func (q *Queue) waits() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(q.config.PublishBackoff), backoff.WithMultiplier(2),
		backoff.WithMaxInterval(max(time.Second, q.config.PublishBackoff)), backoff.WithMaxElapsedTime(0))
}

// refusedAlways reports whether the letter caused an error that outlasted all tries: the publisher panicked, or its
// error is permanent or invalid.
func (q *Queue) refusedAlways(err error) bool {
	class := q.config.Classifier.Classify(err).Class
	return (class == classify.ClassPermanent || class == classify.ClassInvalid) && !outage.Unavailable(err)
}

// logged bounds a value that came with a message before it goes into a log line or an error.
func logged(value string) string { return boundedtext.Text(value, 200) }

func (q *Queue) traced() traced.By {
	return traced.By{Tracer: q.config.Tracer, Logger: q.config.Logger}
}

// operation is one publishing of a letter.
func (q *Queue) operation(ctx context.Context, sink Sink, l *Letter, number int) *observe.Operation {
	if q.config.Tracer == nil {
		return nil
	}
	placed := *l
	placed.DeadLetterTopic = sink.Topic
	return &observe.Operation{
		Kind: observe.DeadLetter, Topic: l.Origin.Topic, Handler: l.Origin.Handler, To: sink.Topic,
		Client: sink.Publisher,
		ID:     l.Original.UUID, Message: l.Original, Number: number, Redrives: l.Redrive.Count,
		Attempts: l.Failure.Attempts,
		Verdict:  classify.Verdict{Class: l.Failure.Class, Reason: l.Failure.Reason}, Letter: placed,
		Parent:  chain.TraceOf(ctx),
		Earlier: l.Trace, // of what brought the message here
	}
}

// shown returns the text of a refusal as it may be shown.
func (q *Queue) shown(err error) string { return q.causeOf(err).Error() }

// errNoRoom is for a message that is larger than what any sink takes. It stays where it is.
var errNoRoom = errors.New("poison: the message is too large for all sinks, even without a letter: raise their limit " +
	"for messages, or give QueueConfig.Fallbacks a sink that takes larger ones, such as a dead-letter store")

// noRoomPause is how long a message that no sink has room for waits before it is requeued, if it may be held for so
// long: some brokers deliver a nacked message again at once.
const noRoomPause = 10 * time.Second

// rawForm is a letter for a sink that refused the letter for what it carries.
type rawForm uint8

const (
	whole  rawForm = iota
	packed         // the producer's id and metadata are one base64 value, and nothing else
	bare           // without the producer's metadata
	plain          // the message as it came: no letter, since there is no room for one
)

func (f rawForm) String() string { return [...]string{"whole", "packed", "bare", "plain"}[f] }

const (
	maxRaw   = 2 << 10 // what we add, apart from the packed metadata: less than any broker's limit
	maxRawID = 36      // a UUID's length, which every table has room for
)

// raw encodes the letter in a form that any sink takes: id and payload, and metadata of printable ASCII alone.
func (l *Letter) raw(form rawForm, budget int) *message.Message {
	original := l.Original
	msg := message.NewMessageWithContext(original.Context(), rawID(original.UUID), original.Payload)
	l.markSealed(msg)
	w := writer{to: msg.Metadata, left: min(budget, maxRaw), ascii: true}
	if form == packed {
		msg.Metadata[KeyOriginalMetadata] = packMetadata(original.UUID, original.Metadata, maxPacked)
	} else {
		w.set(keyDropped, fmt.Sprintf("%d keys, %d bytes", len(original.Metadata), sizeOf(original.Metadata)))
	}
	l.writeFirst(&w)
	l.writeRest(&w, shrunkLimits)
	return msg
}

// plain returns the message as it came. All that is added is the count of redrives, which came with it. A letter that
// failed in its own consumer stays a letter.
func (l *Letter) plain() *message.Message {
	if l.parked != nil {
		return l.parked.Copy()
	}
	msg := message.NewMessage(l.Original.UUID, l.Original.Payload)
	maps.Copy(msg.Metadata, l.Original.Metadata)
	l.markSealed(msg)
	w := writer{to: msg.Metadata, left: countLimits.total}
	w.count(KeyRedriveCount, &l.Redrive.Count)
	return msg
}

// rawID returns id, or a name for it where a sink could refuse id: the true one is packed, and in
// x-original-message-id.
func rawID(id string) string {
	if len(id) <= maxRawID && isASCII(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// isASCII reports whether s is printable ASCII.
func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

func toASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

func sizeOf(metadata message.Metadata) (size int) {
	for key, value := range metadata {
		size += len(key) + len(value)
	}
	return size
}
