package poison

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-spillway/spillway/classify"
	"github.com/watermill-spillway/spillway/internal/boundedtext"
	"github.com/watermill-spillway/spillway/internal/chain"
	"github.com/watermill-spillway/spillway/internal/chain/deadletter"
	"github.com/watermill-spillway/spillway/internal/errs/safecall"
	"github.com/watermill-spillway/spillway/internal/hidden"
	"github.com/watermill-spillway/spillway/internal/hold"
	"github.com/watermill-spillway/spillway/internal/hold/outage"
	"github.com/watermill-spillway/spillway/internal/logging"
	"github.com/watermill-spillway/spillway/internal/upstream/decorated"
	"github.com/watermill-spillway/spillway/internal/upstream/destination"
	"github.com/watermill-spillway/spillway/naming"
	"github.com/watermill-spillway/spillway/observe"
	"github.com/watermill-spillway/spillway/seal"
)

// QueueConfig configures a Queue. The zero value is ready to use.
type QueueConfig struct {
	// Fallbacks are tried in order if the publisher of NewQueue refuses a letter. Default: none.
	Fallbacks []Sink
	// PublishAttempts is how often each publisher is tried; refusals for size do not count. Default: 3.
	PublishAttempts int
	// PublishBackoff is the wait after the first refusal, with a jitter of one half. It doubles with each refusal, up
	// to 1 s. A longer wait stays as it is. Default: 50 ms.
	PublishBackoff time.Duration
	// Origin returns what the broker knows of a message's origin, such as wmkafka.Origin. Topic, handler and id that it
	// leaves empty are those of the router. Default: the router's alone.
	Origin func(*message.Message) Origin
	// MaskMetadata changes the producer's metadata in the letter itself, value by value: a redriven message has the
	// masked values. If it panics, the value is withheld. Default: none.
	MaskMetadata func(key, value string) string
	// WatermillKeys also writes the metadata keys of Watermill's PoisonQueue, up to 4 KiB. Default: false.
	WatermillKeys bool
	// Node names this process in letters. Default: the host's name.
	Node string
	// Hooks are called after events. Default: none.
	Hooks Hooks
	// Naming names the dead-letter topics. Default: <topic>.dlq, <topic>.invalid, and so on, as package naming says.
	Naming naming.Scheme
	// Seal encrypts the payload and the producer's metadata of each letter, before any publisher gets it. If its Keys
	// fail, nothing is published: the message is held or nacked, as if all publishers refused it. Hooks are called with
	// the sealed letter. Give letters.NewStore and redrive.Rules the same Sealer. Default: none, and letters are
	// readable.
	Seal *seal.Sealer
	// Shared: Classifier judges errors that no retry further in has judged, and decides which refusals of publishers
	// are for size, for stages and outputs too. Privacy masks the texts of errors and panics (description, history,
	// stack, reason) before they go into the letter, the log, a hook, or an error that the router gets. It changes
	// neither payload nor metadata. Logger receives one Error line per dead letter. The line has its cause, masked and
	// cut at 1 KiB, its class and reason, the message's id, topic and handler, and where the letter is. Tracer follows
	// each publishing of a letter.
	observe.Shared
}

// Hooks are called after the event, in the goroutine of the message, and must be quick. Several are called at the same
// time. They may keep the letter. A panic of a hook is logged and changes nothing.
type Hooks struct {
	// OnDeadLetter is called with each letter that a publisher confirmed; Letter.DeadLetterTopic says where it is. A
	// letter that is written in the transaction of its message is committed or rolled back after the hook, with that
	// transaction.
	OnDeadLetter func(context.Context, Letter)
	// OnDiscard is called with each message that was dropped because its error was marked with classify.Discard.
	OnDiscard func(context.Context, Letter)
	// OnPublishError is called with each refusal by a publisher.
	OnPublishError func(context.Context, Letter, error)
	// OnUnplaced is called with each letter that all publishers refused. The message is nacked and redelivered. But if
	// its handler had acked it, the message is lost: this hook and the log are the only record.
	OnUnplaced func(context.Context, Letter, error)
}

// Sink is a publisher of dead letters, beside that of NewQueue.
type Sink struct {
	// Publisher confirms each letter, as the publisher of NewQueue does. Required.
	Publisher message.Publisher
	// Topic is published to. Default: the topic that the letter was meant for.
	Topic string
}

func (c *QueueConfig) setDefaults() {
	if c.PublishAttempts == 0 {
		c.PublishAttempts = 3
	}
	if c.PublishBackoff == 0 {
		c.PublishBackoff = 50 * time.Millisecond
	}
	if c.Node == "" {
		c.Node, _ = os.Hostname()
	}
	c.Logger = logging.Wrap(c.Logger, c.Privacy.Text)
}

func (c *QueueConfig) validate() error {
	for i, sink := range c.Fallbacks {
		if safecall.IsNil(sink.Publisher) {
			return fmt.Errorf("poison: QueueConfig.Fallbacks[%d].Publisher is nil: give a publisher, or leave the fallback out",
				i)
		}
		if err := destination.Check(sink.Publisher); err != nil {
			return fmt.Errorf("poison: QueueConfig.Fallbacks[%d].Publisher: %w", i, err)
		}
		if err := destination.CheckKeeps(sink.Publisher); err != nil {
			return fmt.Errorf("poison: QueueConfig.Fallbacks[%d].Publisher: %w", i, err)
		}
	}
	if c.PublishAttempts < 0 || c.PublishBackoff < 0 {
		return fmt.Errorf("poison: QueueConfig.PublishAttempts (%d) and PublishBackoff (%s) must not be negative",
			c.PublishAttempts, c.PublishBackoff)
	}
	if err := c.Naming.Validate(); err != nil {
		return fmt.Errorf("poison: QueueConfig.Naming: %w", err)
	}
	return nil
}

// What other packages of Spillway need of a Queue, in one value for each of them.
type (
	link   = chain.Link
	owned  = outage.Owned
	handle = hidden.Handle[*inner]
)

// Queue dead-letters failed messages. It is the outermost part around a handler. It is safe for concurrent use and
// keeps no state of messages.
type Queue struct {
	link
	owned
	handle
	publisher message.Publisher
	through   []string // where the publisher and the fallbacks write, if they are a forwarder's
	config    QueueConfig
	limits    limits
	sink      *outage.Dependency // of what takes the letters
	misplaced sync.Once
	ready     sync.Map // dead-letter topics that exist
	notice    destination.Notice
}

// NewQueue returns a Queue that sends dead letters to publisher, or an error that names what could lose messages.
//
// The publisher must belong to the queue and not to a handler: the router closes a handler's publisher when that
// handler stops. It must confirm each letter, because the source is acked after Publish returns. NewQueue refuses a
// decorator that hides an Initializer, see WithInitializer. It refuses a publisher whose broker drops messages by their
// ids, if that is known: the publisher says so by a method Deduplicates() bool, or is that of watermill-nats with
// TrackMsgID.
func NewQueue(publisher message.Publisher, config QueueConfig) (*Queue, error) {
	if safecall.IsNil(publisher) {
		return nil, errors.New("poison: NewQueue: the publisher is nil: dead letters would be lost; give a publisher or a " +
			"dead-letter store")
	}
	if err := destination.Check(publisher); err != nil {
		return nil, fmt.Errorf("poison: NewQueue: the publisher: %w", err)
	}
	if err := destination.CheckKeeps(publisher); err != nil {
		return nil, fmt.Errorf("poison: NewQueue: %w", err)
	}
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	sink := outage.New(outage.Config{Name: "poison: the publisher of dead letters", Lost: outage.Lost,
		Logger: config.Logger})
	through := []string{destination.Through(publisher)}
	for _, sink := range config.Fallbacks {
		through = append(through, destination.Through(sink.Publisher))
	}
	q := &Queue{publisher: publisher, through: through, config: config, limits: defaultLimits, sink: sink}
	q.link, q.owned, q.handle = chain.LinkOf(q.step), outage.OwnedBy(sink), hidden.By((*inner)(q))
	return q, nil
}

// Middleware dead-letters messages that fail in h. It returns nil, so that the router acks the message, after a
// publisher confirmed the letter. It returns an error, so that the router nacks, if all publishers refused the letter
// or the message's context was cancelled. Outputs of a failed handler are not published.
func (q *Queue) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return chain.Enter(q.step)(h)
}

func (q *Queue) step(next chain.Handler) chain.Handler {
	next = readable(next)
	return func(c *chain.Call) (out []*message.Message, o chain.Outcome) {
		// a parked message would be a copy of itself, and a sequence absorbs its copies by their keys
		if c.Sequence() == nil {
			if o, settled := hold.Settle(c); settled {
				return nil, o
			}
		}
		returned := false
		defer func() {
			if !returned {
				out, o = q.interrupted(c, recover())
				o = q.outward(o)
			}
		}()
		out, o = next(c)
		returned = true
		if o.Next != chain.Done {
			out, o = q.settleOrNack(c, o)
			o = q.outward(o)
		}
		return out, o
	}
}

// outward returns o with the text of its error masked.
func (q *Queue) outward(o chain.Outcome) chain.Outcome {
	o.Why = q.config.Privacy.Error(o.Why)
	return o
}

// inner is a Queue with the methods that only Spillway's own packages call. Those without a receiver need no Queue: see
// inside.Poison.
type inner Queue

// IsLetter reports whether msg carries the failure of a dead letter. A message in a retry stage carries one too:
// see StageOf.
func (*inner) IsLetter(msg *message.Message) bool { return isLetter(msg) }

// ProducerMetadata returns metadata without the keys of package poison and of the other writers whose letters it
// reads. It returns a copy, or metadata itself if it has none of these keys. Headers of other
// writers are removed only from a letter: a count of attempts alone, as in a message on its way through retry
// topics, stays, and so does RabbitMQ's x-death.
func (*inner) ProducerMetadata(metadata message.Metadata) message.Metadata {
	added := writersOf(metadata)
	if added == 0 {
		return metadata
	}
	return without(metadata, added)
}

// Publish publishes messages through pub. One that pub refuses for what it carries is offered once more, without the
// metadata that are packed in it.
func (*inner) Publish(pub message.Publisher, topic string, messages ...*message.Message) error {
	return offer(pub, topic, messages...)
}

// StageOf reads which retry stage msg waits in, or came from. The values are those of the message and are not
// verified.
func (*inner) StageOf(msg *message.Message) deadletter.Stage {
	if msg == nil {
		return deadletter.Stage{}
	}
	return deadletter.Stage{
		Number:    boundedtext.Count(msg.Metadata[KeyRetryStage]),
		DueAt:     boundedtext.Time(msg.Metadata[KeyRetryDueAt]),
		HoldUntil: boundedtext.Time(msg.Metadata[KeyRetryHoldUntil]),
	}
}

// Seal returns a copy of a dead letter with its payload and its producer's metadata sealed with the current key.
// All that Read reads stays readable. changed reports whether it is a copy: a letter that the current key
// sealed already is returned as it is.
func (*inner) Seal(ctx context.Context, s *seal.Sealer, msg *message.Message) (*message.Message, bool, error) {
	return sealMessage(ctx, s, msg)
}

// IsDeadLetterTopic reports whether topic is one of dead letters, by its name: what fails in its consumer is
// parked.
func (in *inner) IsDeadLetterTopic(topic string) bool {
	return in.config.Naming.IsDeadLetter(topic)
}

// Initialize makes sure that the dead-letter topics of a handler of topic exist, with every publisher that is an
// Initializer.
func (in *inner) Initialize(topic, handler string) error {
	return (*Queue)(in).initialize(naming.Source{Topic: topic, Handler: handler})
}

// CheckPublisher returns an error if pub, a handler's publisher, is one that takes the dead letters: the router
// closes it when that handler stops, and then nothing takes the letters of the other handlers.
func (in *inner) CheckPublisher(pub message.Publisher) error {
	for n, sink := range append([]Sink{{Publisher: in.publisher}}, in.config.Fallbacks...) {
		if decorated.ClosedTogether(pub, sink.Publisher) {
			name := "the publisher of dead letters"
			if n > 0 {
				name = fmt.Sprintf("QueueConfig.Fallbacks[%d].Publisher", n-1)
			}
			return fmt.Errorf("poison: %s (%T) is a handler's publisher too, which the router closes when that handler stops: "+
				"give the dead letters a publisher of their own; or, if a decorator keeps it open, give that a method Unwrap that "+
				"returns nil", name, sink.Publisher)
		}
	}
	return nil
}

// Classifier returns QueueConfig.Classifier, which decides what is a refusal for size. It may be nil.
func (in *inner) Classifier() *classify.Classifier { return in.config.Classifier }

// FromStage restores what ForStage packed of msg, which comes out of a retry stage: the id and the metadata that a
// transport could have changed.
func (in *inner) FromStage(msg *message.Message) { unpackInto(msg) }

// Cause returns err as a log line may have it: the head of its text, masked by the Privacy of its QueueConfig.
func (in *inner) Cause(err error) error { return (*Queue)(in).causeOf(err) }

// Error returns err with its text masked, for hooks. It wraps err.
func (in *inner) Error(err error) error { return in.config.Privacy.Error(err) }

// Shown returns v with its texts masked, for hooks and tracers.
func (in *inner) Shown(v classify.Verdict) classify.Verdict {
	v.Reason, v.Description = in.config.Privacy.Text(v.Reason), in.config.Privacy.Text(v.Description)
	return v
}

// ForStage returns the message that is published to a retry stage in place of original, a message as it arrived. It
// has original's origin and the failure so far, earlier stages included, without the stack. The context of the
// message has the values of original's context and does not end with it. ForStage takes over original.
func (in *inner) ForStage(original *message.Message, failure *classify.Failure, number int, due,
	holdUntil time.Time) *message.Message {
	ctx := original.Context()
	source := naming.Source{Topic: message.SubscribeTopicFromCtx(ctx), Handler: message.HandlerNameFromCtx(ctx),
		Class: failure.Verdict.Class}
	l := (*Queue)(in).letter(original, failure, source, false)
	l.stage = deadletter.Stage{Number: number, DueAt: due, HoldUntil: holdUntil}
	// what reads as exhausted by default is not yet
	l.Failure.Reason = failure.Verdict.Reason
	(*Queue)(in).maskTexts(&l.Failure)
	msg := l.encode(limits{total: in.limits.total, description: 256, history: in.limits.history})
	msg.SetContext(chain.Returning(context.WithoutCancel(ctx)))
	return msg
}
